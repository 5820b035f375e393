"""The rules between pods as a round keeps them: counters by domain, what they allow, and an order that is legal."""
