"""What the engines that several servers share have in common: groups of calls, news, bells, counts."""
