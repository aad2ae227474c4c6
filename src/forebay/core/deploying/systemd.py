"""systemd: a unit that gives running work its grace, and the settings beside it."""

import json

from forebay.core.deploying.model import Model


def systemd_files(model: Model) -> dict[str, str]:
    """Return the unit and its settings."""
    quota = f"{model.cpus * 100:.0f}%"
    unit = f"""{model.head()}[Unit]
Description=Forebay, the basin in front of {model.app}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
User={model.name}
WorkingDirectory=/etc/{model.name}
StateDirectory={model.name}
# Where the command is: a virtual environment of its own.
ExecStart=/opt/{model.name}/bin/forebay serve {model.app} --data /var/lib/{model.name}
Restart=always
RestartSec=1
# A setting that is wrong is wrong again a second later.
RestartPreventExitStatus=2
# SIGTERM drains; what runs has the grace of forebay.toml, and systemd waits longer than that.
KillMode=mixed
# One worker that is killed for memory is replaced; by default systemd would stop the whole service.
OOMPolicy=continue
TimeoutStopSec={model.stop_s}
LimitNOFILE=65536
MemoryMax={model.memory}
CPUQuota={quota}
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
    lines = [
        f"workers = {model.workers}",
        f"port = {model.port}",
        f'grace = "{model.grace_s:g}s"',
        'log_format = "json"',
    ]
    if model.queue_max is not None:
        lines.append(f"queue_max = {model.queue_max}")
    if model.queue_bytes_max is not None:
        lines.append(f"queue_bytes_max = {json.dumps(model.queue_bytes_max)}")
    return {f"{model.name}.service": unit, "forebay.toml": model.head() + "\n".join(lines) + "\n"}
