//! What changed between two readings, in words.

use std::collections::BTreeMap;

use super::Snapshot;
use statseg::ThreadCounters;

/// In the application for so long without a return is worth a word (IX §4.1).
const UNRESPONSIVE_NS: u64 = 10_000_000;

/// What changed, oldest first as far as that can be told.
pub fn between(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut said = moved(before, after);
    for (thread, (then, now)) in before.threads.iter().zip(&after.threads).enumerate() {
        if then.state != now.state {
            said.push(format!("thread {thread} is {}", now.state.name()));
        }
        if then.processor != now.processor {
            let place =
                now.processor.map_or("any processor".to_owned(), |cpu| format!("processor {cpu}"));
            said.push(format!("thread {thread} runs on {place}"));
        }
        // The service's own numbers, which may be any.
        let failed =
            |one: &ThreadCounters| one.migrations.given_up.saturating_add(one.migrations.refused);
        let moves = [failed(then), failed(now)];
        if moves[1] > moves[0] {
            let failed = moves[1] - moves[0];
            said.push(format!("{failed} moves from thread {thread} were refused or given up"));
        }
        match (is_late(then, before.at_ns), is_late(now, after.at_ns)) {
            (false, true) => said
                .push(format!("thread {thread}: the application has not returned for over 10 ms")),
            (true, false) => said.push(format!("thread {thread}: the application is back")),
            _ => {}
        }
    }
    said
}

fn is_late(thread: &ThreadCounters, now_ns: u64) -> bool {
    let since = thread.in_application_since_ns;
    since > 0 && now_ns.saturating_sub(since) > UNRESPONSIVE_NS
}

fn moved(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut moves: BTreeMap<(u16, u16), usize> = BTreeMap::new();
    for homes in before.homes.iter().zip(&after.homes) {
        if let (Some(from), Some(to)) = homes
            && from != to
        {
            *moves.entry((*from, *to)).or_default() += 1;
        }
    }
    let said = |((from, to), count)| match count {
        1 => format!("a flow group moved from thread {from} to {to}"),
        _ => format!("{count} flow groups moved from thread {from} to {to}"),
    };
    moves.into_iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::sample::tests::two_readings;
    use statseg::State;

    #[test]
    fn changes_are_told_once() {
        let (before, mut after) = two_readings();
        assert_eq!(
            between(&before, &after),
            [
                "a flow group moved from thread 1 to 0",
                "thread 0: the application has not returned for over 10 ms",
            ]
        );
        assert_eq!(between(&after, &after), [""; 0]);
        let late = after.clone();
        after.threads[0].in_application_since_ns = 0;
        after.threads[1].state = State::Running;
        after.threads[1].processor = Some(5);
        after.threads[0].migrations.refused += 2;
        after.homes = vec![Some(1); 4];
        assert_eq!(
            between(&late, &after),
            [
                "4 flow groups moved from thread 0 to 1",
                "2 moves from thread 0 were refused or given up",
                "thread 0: the application is back",
                "thread 1 is running",
                "thread 1 runs on processor 5",
            ]
        );
    }
}
