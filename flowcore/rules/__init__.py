"""What Kubernetes and the policies demand of a placement: filters, rules across domains, verdicts, reasons."""
