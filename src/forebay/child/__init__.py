"""The process that imports user code, calls it, and reports. Nothing else imports this package."""
