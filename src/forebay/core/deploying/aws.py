"""AWS in Terraform: a load balancer, a group that follows the backlog, and alarms that page."""

from typing import Final

from forebay.core.deploying.cloudwatch import SPACE, WANTED, agent, alarms, scrape
from forebay.core.deploying.model import Model
from forebay.core.deploying.systemd import systemd_files

WARM_UP_S: Final = 300  # of an instance, before its numbers count
CPU_TARGET: Final = 70


def aws_files(model: Model) -> dict[str, str]:
    """Return the files of one Terraform module."""
    return {
        "main.tf": model.head() + _VARIABLES + _filled(_NETWORK + _GROUP + _POLICIES, model),
        "alarms.tf": model.head() + alarms(model),
        "user_data.sh.tftpl": _filled(_USER_DATA, model),
        "cloudwatch-agent.json": agent(),
        "agent-prometheus.yml": model.head() + scrape(model),
        **systemd_files(model),
    }


def _filled(text: str, model: Model) -> str:
    """Return a text with what the model says in the place of its @NAMES@."""
    told: dict[str, object] = {
        "NAME": model.name, "PORT": model.port, "STOP_S": model.stop_s, "WARM_UP_S": WARM_UP_S,
        "INSTANCE_TYPE": model.instance_type, "LEAST": model.nodes_min, "MOST": model.nodes_max,
        "WORKERS": model.workers, "SPACE": SPACE, "WANTED": WANTED[0], "TASK": model.task or "TASK",
        "CPU_TARGET": CPU_TARGET,
    }  # fmt: skip
    for name, value in told.items():
        text = text.replace(f"@{name}@", str(value))
    return text


_VARIABLES: Final = """
variable "vpc_id" { type = string }
variable "subnet_ids" { type = list(string) }
variable "ami_id" {
  type        = string
  description = "An image with the application, Forebay and the CloudWatch agent."
}
variable "certificate_arn" { type = string }
variable "allowed_cidrs" {
  type    = list(string)
  default = ["10.0.0.0/8"]
}
variable "broker" {
  type        = string
  sensitive   = true
  description = "The engine that all instances share: postgresql://... or redis://..."
}
variable "webhook_secret" {
  type        = string
  sensitive   = true
  description = "whsec_ and what openssl rand -base64 32 prints: all instances sign callbacks with it."
}
variable "link_secret" {
  type        = string
  sensitive   = true
  description = "Another one, for links: any instance opens what another signed."
}
variable "blobs" {
  type        = string
  description = "Where all instances find large payloads and results: s3://bucket/prefix."
}
variable "keys_file" {
  type        = string
  sensitive   = true
  description = "The text of keys.toml: see forebay keys new."
}
variable "metrics_key" {
  type        = string
  sensitive   = true
  description = "A key with the scope admin, for the agent."
}
variable "page_to" {
  type        = string
  description = "Where alarms go by mail."
}
"""


_NETWORK: Final = """
resource "aws_security_group" "@NAME@_front" {
  vpc_id = var.vpc_id
  ingress {
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = var.allowed_cidrs
  }
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_security_group" "@NAME@" {
  vpc_id = var.vpc_id
  ingress {
    from_port       = @PORT@
    to_port         = @PORT@
    protocol        = "tcp"
    security_groups = [aws_security_group.@NAME@_front.id]
  }
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_lb" "@NAME@" {
  name               = "@NAME@"
  load_balancer_type = "application"
  internal           = true
  subnets            = var.subnet_ids
  security_groups    = [aws_security_group.@NAME@_front.id]
  idle_timeout       = 90
}

resource "aws_lb_target_group" "@NAME@" {
  name                 = "@NAME@"
  port                 = @PORT@
  protocol             = "HTTP"
  vpc_id               = var.vpc_id
  deregistration_delay = @STOP_S@
  health_check {
    path                = "/readyz"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "@NAME@" {
  load_balancer_arn = aws_lb.@NAME@.arn
  port              = 443
  protocol          = "HTTPS"
  certificate_arn   = var.certificate_arn
  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.@NAME@.arn
  }
}
"""


_GROUP: Final = """
resource "aws_iam_role" "@NAME@" {
  name_prefix        = "@NAME@-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "@NAME@_agent" {
  role       = aws_iam_role.@NAME@.name
  policy_arn = "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy"
}

resource "aws_iam_instance_profile" "@NAME@" {
  name_prefix = "@NAME@-"
  role        = aws_iam_role.@NAME@.name
}

resource "aws_launch_template" "@NAME@" {
  name_prefix            = "@NAME@-"
  image_id               = var.ami_id
  instance_type          = "@INSTANCE_TYPE@"
  update_default_version = true
  vpc_security_group_ids = [aws_security_group.@NAME@.id]
  iam_instance_profile {
    name = aws_iam_instance_profile.@NAME@.name
  }
  metadata_options {
    http_tokens = "required"
  }
  user_data = base64encode(templatefile("${path.module}/user_data.sh.tftpl", {
    unit     = file("${path.module}/@NAME@.service")
    settings = file("${path.module}/forebay.toml")
    agent    = file("${path.module}/cloudwatch-agent.json")
    scrape   = file("${path.module}/agent-prometheus.yml")
    broker   = var.broker
    webhooks = var.webhook_secret
    links    = var.link_secret
    blobs    = var.blobs
    keys     = var.keys_file
    key      = var.metrics_key
  }))
}

resource "aws_autoscaling_group" "@NAME@" {
  name                      = "@NAME@"
  min_size                  = @LEAST@
  max_size                  = @MOST@
  vpc_zone_identifier       = var.subnet_ids
  target_group_arns         = [aws_lb_target_group.@NAME@.arn]
  health_check_type         = "ELB"
  health_check_grace_period = @WARM_UP_S@
  default_instance_warmup   = @WARM_UP_S@
  enabled_metrics           = ["GroupInServiceInstances"]
  launch_template {
    id      = aws_launch_template.@NAME@.id
    version = "$Latest"
  }
  instance_refresh {
    strategy = "Rolling"
  }
}
"""


_POLICIES: Final = """
# As many instances as the work needs: what is wanted on all of them, for each that is there.
resource "aws_autoscaling_policy" "@NAME@_backlog" {
  name                   = "@NAME@-backlog"
  autoscaling_group_name = aws_autoscaling_group.@NAME@.name
  policy_type            = "TargetTrackingScaling"
  target_tracking_configuration {
    target_value = @WORKERS@
    customized_metric_specification {
      metrics {
        id          = "wanted"
        return_data = false
        metric_stat {
          stat = "Maximum"
          metric {
            namespace   = "@SPACE@"
            metric_name = "@WANTED@"
            dimensions {
              name  = "task"
              value = "@TASK@"
            }
          }
        }
      }
      metrics {
        id          = "there"
        return_data = false
        metric_stat {
          stat = "Average"
          metric {
            namespace   = "AWS/AutoScaling"
            metric_name = "GroupInServiceInstances"
            dimensions {
              name  = "AutoScalingGroupName"
              value = aws_autoscaling_group.@NAME@.name
            }
          }
        }
      }
      metrics {
        id         = "each"
        expression = "wanted / there"
      }
    }
  }
}

# The second word, for work that the queue does not show. Target tracking has no cooldown: the warm-up counts.
# forebay: ignore asg-follows-cpu
resource "aws_autoscaling_policy" "@NAME@_cpu" {
  name                   = "@NAME@-cpu"
  autoscaling_group_name = aws_autoscaling_group.@NAME@.name
  policy_type            = "TargetTrackingScaling"
  target_tracking_configuration {
    target_value = @CPU_TARGET@
    predefined_metric_specification {
      predefined_metric_type = "ASGAverageCPUUtilization" # forebay: ignore asg-follows-cpu
    }
  }
}
"""


_USER_DATA: Final = """#!/bin/bash
set -euo pipefail
id -u @NAME@ >/dev/null 2>&1 || useradd --system --no-create-home @NAME@
mkdir -p /etc/@NAME@ /etc/forebay
umask 077
cat >/etc/@NAME@/forebay.toml <<'SETTINGS'
${settings}
host = "0.0.0.0"
broker = "${broker}"
webhook_secret = "${webhooks}"
link_secret = "${links}"
blobs = "${blobs}"
keys_file = "/etc/@NAME@/keys.toml"
SETTINGS
cat >/etc/@NAME@/keys.toml <<'KEYS'
${keys}
KEYS
chown -R @NAME@ /etc/@NAME@
cat >/etc/forebay/metrics.key <<'KEY'
${key}
KEY
chown -R cwagent /etc/forebay || true
umask 022
cat >/etc/systemd/system/@NAME@.service <<'UNIT'
${unit}
UNIT
cat >/etc/forebay/agent-prometheus.yml <<'SCRAPE'
${scrape}
SCRAPE
cat >/etc/forebay/cloudwatch-agent.json <<'AGENT'
${agent}
AGENT
systemctl daemon-reload
systemctl enable --now @NAME@.service
/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl -a fetch-config -m ec2 -s \\
  -c file:/etc/forebay/cloudwatch-agent.json
"""
