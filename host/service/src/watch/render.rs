//! Services as text.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::{ServiceView, ThreadView};

const STACK_COLUMNS: usize = 110;

/// One service: what it is, its threads, where its flow groups are.
pub fn service(view: &ServiceView) -> String {
    let ServiceView { name, pid, scheduler, domain, driver, batch_max, .. } = view;
    let moves = view.migrations;
    let movable = if view.movable { "can be moved" } else { "stay where they are" };
    let mut text = format!(
        "{name}: process {pid}, {scheduler}, domain {domain}, driver {driver}, B = {batch_max}; flow groups {movable}\n"
    );
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "thread",
        "processor",
        "state",
        "load",
        "packets/s",
        "batch",
        "delay us",
        "p99 <",
        "steals/s",
        "kicks/s",
        "connections",
        "flow groups",
    ]);
    for thread in &view.threads {
        table.add_row(row(thread));
    }
    text += &format!("{table}\n{}\n", homes(&view.homes));
    if moves.completed > 0 || moves.failed > 0 {
        text += &format!(
            "moves: {} complete ({} flow groups, {} connections; {:.0} us on average, {:.0} at most), {} refused or \
             given up\n",
            moves.completed,
            moves.flow_groups,
            moves.connections,
            moves.mean_us,
            moves.longest_us,
            moves.failed
        );
    }
    for line in stack(view) {
        text += &line;
        text.push('\n');
    }
    text
}

/// What the stack has counted, in lines of [`STACK_COLUMNS`] at most where a counter has room; those that count nothing
/// yet are left out.
pub fn stack(view: &ServiceView) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, count) in view.stack.iter().filter(|(_, count)| count.total > 0) {
        let rate =
            if count.per_s > 0.0 { format!(" ({:.0}/s)", count.per_s) } else { String::new() };
        let word = format!("{name} {}{rate}", count.total);
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= STACK_COLUMNS => {
                *line += &format!(", {word}");
            }
            _ => lines.push(format!("stack: {word}")),
        }
    }
    lines
}

/// A thread's cells, as both kinds of tables have them.
pub fn row(thread: &ThreadView) -> [String; 12] {
    let p99 = thread.queueing_delay_p99_us.map_or("-".to_owned(), |us| us.to_string());
    let late = thread.in_application_ms.filter(|ms| *ms > 10.0);
    let state = match late {
        Some(ms) => format!("{}, in the application for {ms:.0} ms", thread.state),
        None => thread.state.to_owned(),
    };
    [
        thread.thread.to_string(),
        thread.processor.map_or("any".to_owned(), |cpu| cpu.to_string()),
        state,
        thread.load.map_or("-".to_owned(), |load| format!("{:.0} %", 100.0 * load)),
        format!("{:.0}", thread.packets_per_s),
        format!("{:.1}", thread.batch_packets),
        format!("{:.1}", thread.queueing_delay_us),
        p99,
        format!("{:.0}", thread.steals_per_s),
        format!("{:.0}", thread.kicks_per_s),
        thread.connections.to_string(),
        thread.flow_groups.to_string(),
    ]
}

/// Where flow groups are at home: runs of numbers for each thread.
fn homes(homes: &[Option<u16>]) -> String {
    let mut threads: Vec<Option<u16>> = homes.to_vec();
    threads.sort_unstable();
    threads.dedup();
    let of = |thread: Option<u16>| {
        let groups = homes.iter().enumerate().filter(|(_, home)| **home == thread);
        let groups: Vec<usize> = groups.map(|(group, _)| group).collect();
        let name = thread.map_or("unknown".to_owned(), |thread| format!("thread {thread}"));
        format!("homes: {name}: {}", runs(&groups))
    };
    threads.into_iter().map(of).collect::<Vec<_>>().join("\n")
}

/// `0-3, 7, 9-10`; with a step where it is the same throughout: `0-126 by 2`.
pub fn runs(numbers: &[usize]) -> String {
    if let [first, second, .., last] = numbers
        && let step = second - first
        && step > 1
        && numbers.windows(2).all(|pair| pair[1] - pair[0] == step)
    {
        return format!("{first}-{last} by {step}");
    }
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.into_iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::sample::tests::{described, two_readings};

    #[test]
    fn numbers_are_written_as_runs() {
        let found = [&[0, 1, 2, 5][..], &[7], &[], &[0, 2, 4, 6], &[1, 2, 4]].map(runs);
        assert_eq!(found, ["0-2, 5", "7", "", "0-6 by 2", "1-2, 4"]);
    }

    #[test]
    fn a_service_is_a_table() {
        let (before, after) = two_readings();
        let text = service(&ServiceView::between(&described(2), &before, &after));
        for part in [
            "kv: process 4711, work-conserving, domain inline, driver shm, B = 64",
            "| 50 % | 3200      | 32.0  | 11000.0  | 16384 | 70",
            "running, in the application for 40 ms",
            "| parked ",
            "homes: thread 0: 0-3",
            "stack: tcp_retransmissions 7 (7/s)\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }
}
