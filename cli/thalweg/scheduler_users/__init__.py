"""Who names a scheduler of Thalweg, what becomes of them without Thalweg, and how they get another scheduler."""
