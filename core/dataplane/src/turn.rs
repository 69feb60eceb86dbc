//! What one connection has for the application, on its way from core to core.

use domain::{CallArray, EventArray, EventRecord, Handle, Received};
use mem::Pool;
use stack::StackConfig;

/// Calls that the application can issue in one turn.
const CALLS: usize = 1_024;
/// The turn of what belongs to no connection: datagrams, and connections that could not be opened.
const NOBODY: u64 = u64::MAX;

/// The number under which a connection's turns go.
pub(crate) fn number_of(connection: Option<Handle>) -> u64 {
    connection.map_or(NOBODY, Handle::to_bits)
}

/// All that came for a connection since its last turn, and the calls that the application issued in
/// answer.
#[derive(Debug)]
pub(crate) struct ConnectionTurn {
    connection: u64,
    /// The core at which the connection lives.
    pub home: u8,
    /// Whether any core may run it: not where a connection begins or ends, as its state in the application
    /// is made and dropped at home.
    pub any_core: bool,
    /// The connection's class: which turns are taken first where the cores share one ready set.
    pub class: u8,
    pub events: EventArray,
    pub calls: CallArray,
}

impl ConnectionTurn {
    /// A turn of no connection, at core `home`.
    pub fn new(home: u8, config: &StackConfig) -> Self {
        let calls = calls_of(CallArray::growing, CALLS, config);
        let events = EventArray::growing();
        Self { connection: NOBODY, home, any_core: true, class: 0, events, calls }
    }

    /// Something came for the connection, which is of this class.
    pub fn add(&mut self, record: EventRecord, buffer: Option<Received>, class: u8) {
        self.class = class;
        self.any_core &= runs_anywhere(&record);
        let appended = self.events.append(record, buffer);
        debug_assert!(appended.is_ok(), "it has no bound");
    }

    /// Undoes it: events that nobody will see, calls that nobody will execute. Answers how many buffers the
    /// events had.
    pub fn give_back(&mut self, pool: &mut Pool) -> usize {
        discard(&mut self.calls, pool);
        self.events.drain().map(|(_, mbuf)| pool.free(mbuf)).count()
    }
}

/// An array for so many calls to a stack with these settings.
pub(crate) fn calls_of(
    make: impl FnOnce(usize, usize) -> CallArray,
    capacity: usize,
    config: &StackConfig,
) -> CallArray {
    make(capacity, config.segment_bytes()).with_tx_checksum_offload(config.tx_checksum_offload)
}

/// Empties an array of calls that are not to be executed.
pub(crate) fn discard(calls: &mut CallArray, pool: &mut Pool) {
    let (records, mut payloads) = calls.take();
    payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
    calls.restore(records, payloads);
}

fn runs_anywhere(record: &EventRecord) -> bool {
    match record {
        EventRecord::Recv { .. }
        | EventRecord::Sent { .. }
        | EventRecord::Again { .. }
        | EventRecord::Eof { .. } => true,
        EventRecord::Knock { .. }
        | EventRecord::Connected { .. }
        | EventRecord::ConnectFailed { .. }
        | EventRecord::Dead { .. }
        | EventRecord::Datagram { .. }
        | EventRecord::Listening { .. }
        | EventRecord::Info { .. }
        | EventRecord::Failed { .. } => false,
    }
}

impl shuffle::Turn for ConnectionTurn {
    fn connection(&self) -> u64 {
        self.connection
    }

    fn begin(&mut self, connection: u64) {
        debug_assert!(self.events.is_empty() && self.calls.is_empty(), "a turn that was not ended");
        self.connection = connection;
        self.any_core = true;
        self.class = 0;
    }

    fn class(&self) -> usize {
        self.class.into()
    }
}
