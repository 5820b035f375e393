"""What commands print with: tables, a bar of progress, log lines."""
