//! A NIC's settings before a service and after it.

use std::collections::BTreeMap;

use anyhow::anyhow;

use super::command::{self, one_line};
use super::rig::DATAPLANE;

/// What a service may change of a NIC, as the tools show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicState {
    /// What was looked at, and what was shown.
    shown: Vec<(&'static str, String)>,
}

impl NicState {
    /// Looks at the dataplane's NIC.
    pub fn look() -> Self {
        let tool = |option: &str| {
            command::run(&format!("ethtool {option} {DATAPLANE}"))
                .unwrap_or_else(|_| "none".to_owned())
        };
        let (mut table, mut key, mut at_key) = (String::new(), String::new(), false);
        for line in tool("-x").lines() {
            at_key |= line.contains("hash key");
            let part = if at_key { &mut key } else { &mut table };
            part.push_str(line);
            part.push('\n');
        }
        let table = shares(&table).unwrap_or(table);
        let link = command::run(&format!("ip -d link show {DATAPLANE}")).unwrap_or_default();
        let after = |word: &str| {
            let mut words = link.split_whitespace().skip_while(|found| *found != word);
            words.nth(1).unwrap_or("none").to_owned()
        };
        let program = if link.contains("prog/xdp") { "attached" } else { "none" };
        let shown = vec![
            ("table", table),
            ("key", key),
            ("queues", tool("-l")),
            ("rings", tool("-g")),
            ("features", tool("-k")),
            ("MTU", after("mtu")),
            ("promiscuity", after("promiscuity")),
            ("XDP program", program.to_owned()),
        ];
        Self { shown }
    }

    /// Expects the NIC to be now as it was then, but for what [`difference`](Self::difference) passes over.
    ///
    /// # Errors
    /// What differs.
    pub fn expect_unchanged(&self) -> anyhow::Result<()> {
        self.difference(&Self::look()).map_or(Ok(()), |difference| Err(anyhow!(difference)))
    }

    /// What differs, where anything does, but for the order of a table that gives all queues as much.
    fn difference(&self, now: &Self) -> Option<String> {
        let both = self.shown.iter().zip(&now.shown);
        let all: Vec<String> = both
            .filter(|(before, now)| before != now)
            .map(|((what, before), (_, now))| first_difference(what, before, now))
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// What a table gives each queue, where it gives all of them as much: some drivers have a default of their own, in
/// another order than the kernel's, which is what a service gives back.
fn shares(table: &str) -> Option<String> {
    let rows = table.lines().filter_map(|line| line.trim_start().split_once(':'));
    let rows = rows.filter(|(at, _)| at.parse::<u32>().is_ok());
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for queue in rows.flat_map(|(_, queues)| queues.split_whitespace()) {
        *counts.entry(queue.parse().ok()?).or_default() += 1;
    }
    let each = counts.values().next().filter(|each| counts.values().all(|count| count == *each))?;
    Some(format!("{each} entries for each of {} queues", counts.len()))
}

fn first_difference(what: &str, before: &str, now: &str) -> String {
    let lines = before.lines().zip(now.lines()).find(|(before, now)| before != now);
    let (before, now) = lines.unwrap_or((before, now));
    format!("{what}: '{}' before, '{}' now", one_line(before), one_line(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balanced_table_is_known_in_any_order() {
        let table = |rows: &str| format!("RX flow hash indirection table for dp0:\n{rows}");
        let (rows, turns) = (table("    0:  0 0 1 1\n"), table("    0:  0 1\n    2:  0 1\n"));
        assert_eq!(shares(&rows), shares(&turns));
        assert_eq!(shares(&rows).as_deref(), Some("2 entries for each of 2 queues"));
        assert_eq!(shares(&table("    0:  0 0 0 1\n")), None);
        assert_eq!(shares(""), None);
    }

    #[test]
    fn a_difference_names_what_changed_and_the_first_line() {
        let state = |table: &str, mtu: &str| NicState {
            shown: vec![("table", table.to_owned()), ("MTU", mtu.to_owned())],
        };
        let before = state("0: 0 1\n8: 2 3\n", "1500");
        assert_eq!(before.difference(&before), None);
        let now = state("0: 0 1\n8: 0 0\n", "1400");
        let expected = "table: '8: 2 3' before, '8: 0 0' now; MTU: '1500' before, '1400' now";
        assert_eq!(before.difference(&now).as_deref(), Some(expected));
    }
}
