//! A dialogue as it goes: what the peer sends, and a transcript of what the host does.

use std::time::Duration;

use wire::TcpFlags;

use crate::host::Host;
use crate::support::{Open, Peer, Seg};

/// Longest time for what a timer does: the kernel's time-outs here are three seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module's comment.
pub struct Dialogue<'a> {
    host: &'a mut dyn Host,
    pub peer: Peer,
    transcript: Vec<String>,
}

impl<'a> Dialogue<'a> {
    /// A dialogue of the peer at `port`.
    pub fn new(host: &'a mut dyn Host, port: u16) -> Self {
        Self { host, peer: Peer::new(port, Open::default()), transcript: Vec::new() }
    }

    /// What the host did, one line for each step.
    pub fn finish(self) -> Vec<String> {
        self.transcript
    }

    /// A segment in tcpdump's notation, with what else differs between stacks.
    fn text(&self, seg: &Seg) -> String {
        let mut text = self.peer.text(seg);
        let options = &seg.options;
        if seg.flags.contains(TcpFlags::SYN) {
            text += &options.mss.map_or(String::new(), |mss| format!(" mss {mss}"));
            text += if options.window_scale.is_some() { " scale" } else { "" };
            text += if options.sack_permitted { " sack" } else { "" };
        } else if seg.window == 0 && !seg.flags.contains(TcpFlags::RST) {
            text += " win 0";
        }
        text += if options.timestamp.is_some() { " ts" } else { "" };
        for (left, right) in self.peer.blocks(seg) {
            text += &format!(" {left}:{right}");
        }
        text
    }

    fn note(&mut self, segments: &[Seg]) {
        let texts: Vec<_> = segments.iter().map(|seg| self.text(seg)).collect();
        self.transcript.push(if texts.is_empty() { "silence".into() } else { texts.join(", ") });
    }

    /// The peer sends a segment; what the host answers.
    pub fn hear(&mut self, seg: Seg) {
        let answers = self.host.hear(&seg);
        self.note(&answers);
    }

    /// The peer sends segments; which of them the host answers does not matter.
    pub fn hear_all(&mut self, segments: &[Seg]) {
        let answers: Vec<_> = segments.iter().flat_map(|seg| self.host.hear(seg)).collect();
        self.note(&answers);
    }

    /// The peer's SYN, and the answer, whose number it learns.
    pub fn knock(&mut self, open: Open) {
        self.peer = Peer::new(self.peer.here.port, open);
        self.hear_syn(self.peer.syn());
    }

    /// The same with this SYN.
    pub fn hear_syn(&mut self, syn: Seg) {
        let answers = self.host.hear(&syn);
        if let Some(answer) = answers.first().filter(|seg| seg.flags.contains(TcpFlags::SYN)) {
            self.peer.irs = answer.seq;
            let stamps = self.peer.open.timestamp.zip(answer.options.timestamp);
            self.peer.timestamp = stamps.map(|(value, stamp)| (value, stamp.value));
        }
        self.note(&answers);
    }

    /// An established connection.
    pub fn open(&mut self, open: Open) {
        self.knock(open);
        self.hear(self.peer.seg(1, 1));
    }

    /// An established connection without options but the MSS.
    pub fn open_plain(&mut self) {
        self.open(Open::default());
    }

    /// The application sends.
    pub fn send(&mut self, len: usize) {
        self.host.send(len);
        let sent = self.host.sent();
        self.note(&sent);
    }

    /// The application reads.
    pub fn read(&mut self) {
        let found = self.host.read();
        self.transcript.push(found);
    }

    /// The application sends no more.
    pub fn shutdown(&mut self) {
        self.host.shutdown();
        let sent = self.host.sent();
        self.note(&sent);
    }

    /// The application closes.
    pub fn close(&mut self) {
        self.host.close();
        let sent = self.host.sent();
        self.note(&sent);
    }

    /// What a timer sends.
    pub fn wait(&mut self) {
        let sent = self.host.wait(PATIENCE);
        self.note(&sent);
    }
}
