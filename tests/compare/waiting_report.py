"""What compare_waiting prints: merged latencies, medians of turns, tables and JSON."""

import json
import statistics
import sys


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def quantile(profiles, q):
    """Of the merged latencies; `profiles` are lists of (value, how many operations)."""
    values = sorted(pair for profile in profiles for pair in profile)
    wanted, seen = q * sum(weight for _, weight in values), 0.0
    for value, weight in values:
        seen += weight
        if seen >= wanted * (1 - 1e-9):
            return value
    return 0


def merge(lines, server_cpu_s, seconds):
    """One measurement of what several programs have printed."""
    ops = sum(line["ops"] for line in lines)
    each = max(1, ops)
    profiles = [[(value, share * line["ops"]) for value, share in line["profile"]]
                for line in lines]
    client_cpu_s = sum(line["user_s"] + line["system_s"] for line in lines)
    rates = [line["rate"] for line in lines]
    return {
        "ops": ops,
        "rate": sum(rates),
        "p50_us": quantile(profiles, 0.5) / 1e3,
        "p99_us": quantile(profiles, 0.99) / 1e3,
        "p999_us": quantile(profiles, 0.999) / 1e3,
        "slowest_of_fastest": min(rates) / max(max(rates), 1e-9),
        "conflicts": sum(line["conflicts"] for line in lines),
        "server_us_per_op": server_cpu_s * 1e6 / each,
        "client_us_per_op": client_cpu_s * 1e6 / each,
        "switches_per_op": sum(line["voluntary"] + line["involuntary"] for line in lines) / each,
        "sent_per_op": sum(line["sent_per_op"] * line["ops"] for line in lines) / each,
        "received_per_op": sum(line["received_per_op"] * line["ops"] for line in lines) / each,
        "server_share": server_cpu_s / seconds,
        "client_share": client_cpu_s / len(lines) / seconds,
    }


def median_of(turns):
    """Of each figure by itself. What was measured in the first turn only stays."""
    return {name: statistics.median(turn[name] for turn in turns)
            if not isinstance(value, dict) else value for name, value in turns[0].items()}


def calls_per_operation(text, ops):
    """{system call: calls per operation} of what strace -c has printed."""
    calls = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 5 or not fields[0].replace(".", "").isdigit() or fields[-1] == "total":
            continue
        per_op = int(fields[3]) / max(ops, 1)
        if per_op >= 0.005:
            calls[fields[-1]] = round(per_op, 2)
    return calls


def print_table(header, rows):
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())
    print()


def print_json(options, results):
    settings = {name: getattr(options, name) for name in
                ("turns", "seconds", "ops", "keys", "bytes", "domain")}
    print(json.dumps({"bench": "compare_waiting", "what": options.what, "config": settings,
                      "results": results}))


def ratio(one, other):
    return f"{one / other:.2f}" if other else "-"


def print_rates(options, names, labels, medians):
    """Rates, latencies and costs of the sides; `medians` is {(label, side): measurement}."""
    sides = options.sides
    if options.json:
        return print_json(options, [dict(zip(names, label)) | {"side": side} | one
                                    for (label, side), one in medians.items()])
    stores = [side for side in sides if side.startswith("store")]
    pairs = [(store, side) for store in stores for side in sides if side not in stores]
    pair_names = [f"{store} of {side}" if len(stores) > 1 else f"of {side}"
                  for store, side in pairs]
    header = [*names, *(f"{side}/s" for side in sides), *pair_names,
              *(f"{side} p50" for side in sides), *(f"{side} p99 us" for side in sides),
              *(f"p99 {name}" for name in pair_names)]
    rows, costs, calls = [], [], []
    for label in labels:
        of = {side: medians[label, side] for side in sides}
        rows.append([*label, *(f"{of[side]['rate']:.0f}" for side in sides),
                     *(ratio(of[store]["rate"], of[side]["rate"]) for store, side in pairs),
                     *(f"{of[side]['p50_us']:.0f}" for side in sides),
                     *(f"{of[side]['p99_us']:.0f}" for side in sides),
                     *(ratio(of[store]["p99_us"], of[side]["p99_us"]) for store, side in pairs)])
        costs += [[*label, side, f"{of[side]['server_us_per_op']:.1f}",
                   f"{of[side]['client_us_per_op']:.1f}", f"{of[side]['switches_per_op']:.2f}",
                   f"{of[side]['slowest_of_fastest']:.2f}", f"{of[side]['sent_per_op']:.0f}",
                   f"{of[side]['received_per_op']:.0f}",
                   f"{of[side]['commits_per_msync']:.1f}" if of[side]["commits_per_msync"] else "-"]
                  for side in sides]
        calls += [[*label, side, end, " ".join(f"{name} {often}" for name, often in
                                               of[side][f"{end}_calls"].items())]
                  for side in sides for end in ("server", "client") if options.syscalls]
    print_table(header, rows)
    print_table([*names, "side", "server CPU us/op", "client CPU us/op", "client switches/op",
                 "slowest/fastest program", "sent B/op", "received B/op", "commits/msync"], costs)
    if calls:
        print_table([*names, "side", "end", "system calls per operation"], calls)
    return None


def print_silence(options, medians):
    if options.json:
        return print_json(options, [{"op": label[0], "silence_ms": label[1], "place": place} | one
                                    for (label, place), one in medians.items()])
    places = list(dict.fromkeys(place for _, place in medians))
    rows = []
    for label in dict.fromkeys(label for label, _ in medians):
        of = [medians[label, place] for place in places]
        rows.append([*label, *(f"{one['p50_us']:.0f}" for one in of),
                     *(ratio(one["p50_us"], of[-1]["p50_us"]) for one in of[:-1]),
                     *(f"{one['p99_us']:.0f}" for one in of)])
    print_table(["op", "silence ms", *(f"{place} p50 us" for place in places),
                 *(f"{place} of {places[-1]}" for place in places[:-1]),
                 *(f"{place} p99 us" for place in places)], rows)
    return None


def print_idle(options, medians):
    if options.json:
        return print_json(options, [{"place": place, "clients": clients} | one
                                    for (place, clients), one in medians.items()])
    rows = [[place, clients, f"{100 * one['server_share']:.2f}%", f"{one['server_mib']:.1f}",
             f"{100 * one['client_share']:.3f}%" if clients else "-"]
            for (place, clients), one in medians.items()]
    print_table(["place", "clients", "server, of a core", "server, MiB", "each client, of a core"],
                rows)
    return None


def print_coroutines(options, builds, medians):
    if options.json:
        return print_json(options, [
            {"fabric": label[0], "op": label[1], "coroutines": label[2], "build": build} | one
            for (label, build), one in medians.items()])
    rows = []
    for label in dict.fromkeys(label for label, _ in medians):
        of = [medians[label, build] for build in builds]
        row = [*label, *(f"{one['rate']:.0f}" for one in of)]
        if len(of) > 1:
            row.append(ratio(of[-1]["rate"], of[0]["rate"]))
        row += [f"{one['p50_us']:.1f}" for one in of] + [f"{one['p99_us']:.1f}" for one in of]
        rows.append(row)
    print_table(["fabric", "op", "coroutines", *(f"{build}/s" for build in builds),
                 *(["of before"] if len(builds) > 1 else []),
                 *(f"{build} p50 us" for build in builds),
                 *(f"{build} p99 us" for build in builds)], rows)
    return None
