"""The parent side: leases, batches, supervises the children that run user code, and settles."""
