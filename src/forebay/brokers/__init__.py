"""The engines: adapters of ports.broker, none importing another; wiring opens them."""
