"""The tables of serving_peers.py: one for each part, a row for each server."""

from bench.serving import SLO_S, most_within


def broke(found):
    """Say what broke, in words."""
    words = {"reset": "reset", "socket": "refused by the socket", "late": "unanswered"}
    told = [f"{found['broken'][key]:,} {word}" for key, word in words.items() if found["broken"].get(key)]
    return ", ".join(told) or "none"


def refused(found):
    """Say how many were told when to come back, and how many not."""
    return f"{found['told']:,}, {found['untold']:,}" if found["told"] + found["untold"] else "none"


def expired(found):
    """Say how many were let in and given up by the server, and how late it said so."""
    return f"{found['expired']:,}, {found['expired_p99_ms']:,.0f} ms" if found["expired"] else "none"


def again_after(found):
    """Say after how long all was well, where an overload came before."""
    if "recovery_s" not in found:
        return ""
    never = found["recovery_s"] >= found["watched_s"]
    return f"> {found['watched_s']:.0f} s" if never else f"{found['recovery_s']:.2f} s"


def milliseconds(value, form="{:,.0f} ms"):
    """Say a time, or nothing where nobody was answered so."""
    return form.format(value) if value else ""


def level_cells(found):
    return {
        "in time, of the capacity": f"{found['goodput']:.3f}",
        "p99 of the answers": milliseconds(found["p99_ms"]),
        "refused with a time, without": refused(found),
        "p99 of the refusals": milliseconds(found["refused_p99_ms"], "{:,.1f} ms"),
        "let in and given up, p99": expired(found),
        "broke": broke(found),
        "normal again after": again_after(found),
        "RSS": f"{found['rss_mb']:,.0f} MB",
        "others' cores": f"{found['other_cores']:.1f}",
    }


def burst_cells(found):
    return {
        f"in time, of {most_within(SLO_S)} possible": str(found["good"]),
        "answered 200": f"{found['answered']:,}",
        "refused with a time, without": refused(found),
        "p99 of the refusals": milliseconds(found["refused_p99_ms"]),
        "let in and given up, p99": expired(found),
        "broke": broke(found),
        "last answer": f"{found['last_s']:.2f} s",
        "RSS": f"{found['rss_mb']:,.0f} MB",
        "others' cores": f"{found['other_cores']:.1f}",
    }


def slower_cells(found):
    return {
        "in time at 2x": f"{found['before']['goodput']:.3f}",
        "twice as slow": f"{found['slow']['goodput']:.3f}",
        "its p99": milliseconds(found["slow"]["p99_ms"]),
        "as before": f"{found['again']['goodput']:.3f}",
        "broke": broke(found),
        "RSS": f"{found['rss_mb']:,.0f} MB",
        "others' cores": f"{found['other_cores']:.1f}",
    }


def table(title, results, cells):
    """Return one table; a row that failed says why."""
    shown = {name: cells(found) for name, found in results.items() if "failed" not in found}
    heads = list(next(iter(shown.values()), {"": ""}))
    lines = [f"{title}\n", f"| | {' | '.join(heads)} |", "|---" + "|--:" * len(heads) + "|"]
    for name, found in results.items():
        told = shown.get(name, {}).values() or [found.get("failed", ""), *[""] * (len(heads) - 1)]
        lines.append(f"| {name} | {' | '.join(told)} |")
    return "\n".join(lines)


CELLS = {"levels": level_cells, "burst": burst_cells, "slower": slower_cells}


def tables(parts):
    """Return all of them; `parts` has the figures of each row under the name of its part."""
    return "\n\n".join(table(part, results, CELLS[part.split()[0]]) for part, results in parts.items())
