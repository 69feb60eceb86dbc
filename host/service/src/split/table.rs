//! A device's indirection table (IX §4.5), which the starter holds and the dataplane writes: by requests over the
//! control socket, each of which is answered.
//!
//! The elastic thread that gives flow groups away waits for the answer. The starter bounds how often it writes
//! (`requests`); what it refuses leaves the flow group's packets to be forwarded.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nic::indirection::IndirectionTable;
use nic::rss::RssError;

use super::control::send;
use super::orders::Told;
use super::passed_table::{Answer, PassedTable, Request};
use crate::budget::Budget;

/// How long an elastic thread waits for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Requests that the starter carries out at once, and in a second.
const REQUESTS: usize = 256;

/// Carries out a dataplane's request, which is not trusted to make sense.
pub fn carry_out(table: &mut dyn IndirectionTable, request: &Request) -> Answer {
    let done = match request {
        Request::Write(changes) if changes.len() > table.entries().len() => return Answer::Refused,
        Request::Write(changes) => table.write(changes).map(|()| true),
        Request::Probe(queue, token) => table.probe(*queue, *token),
    };
    match done {
        Ok(true) => Answer::Done,
        Ok(false) => Answer::NoProbe,
        Err(error) => {
            tracing::warn!(%error, "the indirection table stays as it is");
            Answer::Refused
        }
    }
}

/// How many requests may be carried out: so many at once, and as many again in a second.
pub(crate) fn requests(now: Instant) -> Budget {
    Budget::new(REQUESTS, REQUESTS, now)
}

/// Where the thread that hears the starter leaves an answer for the elastic thread that waits.
#[derive(Debug, Default)]
pub struct Answers {
    /// The last answer, with its request's number.
    last: Mutex<Option<(u64, Answer)>>,
    came: Condvar,
}

impl Answers {
    /// An answer has come.
    pub fn came(&self, number: u64, answer: Answer) {
        *self.last() = Some((number, answer));
        self.came.notify_all();
    }

    fn last(&self) -> MutexGuard<'_, Option<(u64, Answer)>> {
        // It is whole whatever panicked beside it.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to the request of this number.
    fn wait(&self, number: u64) -> Option<Answer> {
        let is_missing = |last: &mut Option<(u64, Answer)>| last.is_none_or(|(of, _)| of != number);
        let waited = self.came.wait_timeout_while(self.last(), ANSWERED_WITHIN, is_missing);
        let (last, _) = waited.unwrap_or_else(PoisonError::into_inner);
        last.filter(|&(of, _)| of == number).map(|(_, answer)| answer)
    }
}

/// The starter's table, as the dataplane has it.
#[derive(Debug)]
pub struct RemoteTable {
    control: OwnedFd,
    table: PassedTable,
    answers: Arc<Answers>,
    next: u64,
}

impl RemoteTable {
    /// Of the starter at the other end of `control`, whose answers come to `answers`.
    pub fn new(control: OwnedFd, table: PassedTable, answers: Arc<Answers>) -> Self {
        Self { control, table, answers, next: 0 }
    }

    fn ask(&mut self, request: Request) -> Result<Answer, RssError> {
        let number = self.next;
        self.next += 1;
        let failed = |source| RssError::Os {
            tried: "asking the starter to write the indirection table",
            interface: "the dataplane's device".to_owned(),
            source,
        };
        send(&self.control, &Told::Table { number, request }, &[])
            .map_err(|error| failed(std::io::Error::other(format!("{error:#}"))))?;
        match self.answers.wait(number) {
            Some(Answer::Refused) => Err(failed(std::io::Error::other("it refused"))),
            Some(answer) => Ok(answer),
            None => Err(failed(std::io::ErrorKind::TimedOut.into())),
        }
    }
}

impl IndirectionTable for RemoteTable {
    fn entries(&self) -> &[u16] {
        &self.table.entries
    }

    fn queues(&self) -> u16 {
        self.table.queues
    }

    fn key(&self) -> &[u8] {
        &self.table.key
    }

    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError> {
        let entries = self.table.entries.len();
        for &(group, queue) in changes {
            if group >= entries {
                return Err(RssError::NoSuchGroup { group, entries });
            }
            if queue >= self.table.queues {
                return Err(RssError::NoSuchQueue { queue, queues: self.table.queues });
            }
        }
        self.ask(Request::Write(changes.to_vec()))?;
        for &(group, queue) in changes {
            self.table.entries[group] = queue;
        }
        Ok(())
    }

    fn probe(&mut self, queue: u16, token: u64) -> Result<bool, RssError> {
        Ok(self.ask(Request::Probe(queue, token))? == Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use nic::rss::SoftwareRss;

    use super::super::control::{pair, receive};
    use super::*;

    fn rss() -> SoftwareRss {
        SoftwareRss::new(128, 2, [7; 40]).expect("a shape")
    }

    /// A starter that answers, for so many requests.
    fn answer(far: &OwnedFd, answers: &Answers, table: &mut SoftwareRss, requests: usize) {
        for _ in 0..requests {
            let (told, _) = receive::<Told>(far, 0).expect("sense").expect("something");
            let Told::Table { number, request } = told else { panic!("another word") };
            answers.came(number, carry_out(table, &request));
        }
    }

    #[test]
    fn what_the_dataplane_writes_the_starter_has() {
        let (near, far) = pair().expect("sockets");
        let (answers, mut held) = (Arc::new(Answers::default()), rss());
        let mut remote = RemoteTable::new(near, PassedTable::of(&held), Arc::clone(&answers));
        assert_eq!((remote.entries(), remote.key()), (held.entries(), &[7; 40][..]));
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&far, &answers, &mut held, 2));
            remote.write(&[(3, 0), (4, 1)]).expect("written");
            assert!(!remote.probe(1, 9).expect("answered"), "it has no probes");
        });
        assert_eq!(remote.entries(), held.entries());
        assert_eq!((held.queue_of(3), held.queue_of(4)), (Some(0), Some(1)));
        // Nobody is asked for what makes no sense.
        assert!(matches!(remote.write(&[(128, 0)]), Err(RssError::NoSuchGroup { .. })));
        assert!(matches!(remote.write(&[(0, 2)]), Err(RssError::NoSuchQueue { .. })));
    }

    #[test]
    fn a_starter_that_refuses_or_is_silent_leaves_the_table() {
        let (near, far) = pair().expect("sockets");
        let (answers, held) = (Arc::new(Answers::default()), rss());
        let mut remote = RemoteTable::new(near, PassedTable::of(&held), Arc::clone(&answers));
        let before = remote.entries().to_vec();
        answers.came(0, Answer::Refused);
        assert!(remote.write(&[(0, 1)]).expect_err("refused").to_string().contains("refused"));
        let error = remote.write(&[(0, 1)]).expect_err("silent");
        assert!(matches!(error, RssError::Os { .. }), "{error}");
        drop(far);
        remote.write(&[(0, 1)]).expect_err("gone");
        assert_eq!(remote.entries(), before);
    }

    #[test]
    fn a_hostile_dataplane_gets_what_makes_sense_and_no_more_of_it_than_the_bound() {
        let mut table = rss();
        let refused =
            |table: &mut SoftwareRss, request| carry_out(table, &request) == Answer::Refused;
        assert!(refused(&mut table, Request::Write(vec![(usize::MAX, 0)])));
        assert!(refused(&mut table, Request::Write(vec![(0, u16::MAX)])));
        assert!(refused(&mut table, Request::Write(vec![(0, 0); 129])));
        assert_eq!(carry_out(&mut table, &Request::Probe(u16::MAX, 1)), Answer::NoProbe);
        let now = Instant::now();
        let mut bucket = requests(now);
        let taken = |bucket: &mut Budget, at| (0..1000).filter(|_| bucket.take(at)).count();
        assert_eq!(taken(&mut bucket, now), REQUESTS);
        assert_eq!(taken(&mut bucket, now + Duration::from_millis(500)), REQUESTS / 2);
        assert_eq!(taken(&mut bucket, now + Duration::from_secs(60)), REQUESTS);
    }
}
