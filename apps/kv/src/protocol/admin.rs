//! Commands for people and monitors: stats, version, verbosity, flush_all, quit and what is refused.

use std::fmt::Write;

use super::context::{BAD_EXPTIME, BAD_FORMAT, Context, ERROR};
use super::line::{Tokens, parse_i32, parse_u32};
use super::reply::Output;
use super::step::{State, Step};
use super::text::noreply;
use crate::stats::ClassCounters;

/// What `version` answers: first the version of memcached whose protocol this is, since clients
/// read a number there (libmemcached gives up where it is none, or 0), then our own.
pub const VERSION: &str = concat!("1.6.0-tailplane-kv-", env!("CARGO_PKG_VERSION"));

/// Carries out a command that is none of the frequent ones.
pub(crate) fn execute<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>) -> Step {
    let count = tokens.len();
    match tokens.get(0) {
        b"stats" => stats(context, tokens),
        b"version" => {
            context.reply(format!("VERSION {VERSION}\r\n").as_bytes());
        }
        b"quit" => return Step::new(0, State::Closed),
        b"verbosity" if matches!(count, 2 | 3) => {
            let valid = parse_u32(tokens.get(1)).is_some();
            context.reply_unless(noreply(tokens), if valid { b"OK\r\n" } else { BAD_FORMAT });
        }
        b"flush_all" if count <= 3 => return flush_all(context, tokens),
        // There are none to steer; what is no number is said to be wrong all the same.
        b"slabs"
            if count > 2 && tokens.get(1) == b"automove" && parse_u32(tokens.get(2)).is_none() =>
        {
            context.reply_unless(noreply(tokens), BAD_FORMAT);
        }
        b"shutdown" => context.reply(b"ERROR: shutdown not enabled\r\n"),
        // Memory is reserved once, at start.
        b"cache_memlimit" if matches!(count, 2 | 3) => context.reply_unless(
            noreply(tokens),
            b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
        ),
        name => {
            // A browser (or somebody's page in it) speaks HTTP to us: say nothing.
            if tokens.last().starts_with(b"HTTP/") && is_unknown(name) {
                return Step::new(0, State::Closed);
            }
            context.reply(ERROR);
        }
    }
    Step::done()
}

/// Whether memcached would look at the end of the line: it does so only for names that neither their
/// first letter nor the whole of them leads anywhere.
fn is_unknown(name: &[u8]) -> bool {
    match name {
        [b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't', ..] | [b'm', _] => false,
        _ => !matches!(name, b"replace" | b"prepend" | b"bget" | b"flush_all" | b"verbosity"),
    }
}

fn flush_all<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>) -> Step {
    let quiet = noreply(tokens);
    let mut exptime_s = 0;
    if tokens.len() != if quiet { 2 } else { 1 } {
        let Some(given) = parse_i32(tokens.get(1)) else {
            context.store.count_flush();
            context.reply_unless(quiet, BAD_EXPTIME);
            return Step::done();
        };
        exptime_s = given;
    }
    let at = if exptime_s > 0 { context.now.expiry(exptime_s) } else { context.now.as_u32() };
    let done = context.store.flush(at, context.now, context.turn);
    context.end_turn();
    if !done {
        // The same line once more, in a later turn.
        return Step::part(0, State::Command);
    }
    context.store.count_flush();
    context.reply_unless(quiet, b"OK\r\n");
    Step::done()
}

fn stats<O: Output>(context: &mut Context<'_, O>, tokens: &Tokens<'_>) {
    context.end_turn();
    if tokens.len() == 1 {
        return context.reply(general(context).as_bytes());
    }
    match tokens.get(1) {
        b"reset" => {
            context.store.reset_stats();
            context.reply(b"RESET\r\n");
        }
        b"settings" => context.reply(settings(context).as_bytes()),
        b"items" => context.reply(items(context).as_bytes()),
        b"slabs" => context.reply(slabs(context).as_bytes()),
        b"sizes" => context.reply(b"STAT sizes_status disabled\r\nEND\r\n"),
        // Nothing is kept by key prefix: turning it off succeeds, and the dump is empty.
        b"detail" => match tokens.get(2) {
            b"off" => context.reply(b"OK\r\n"),
            b"dump" => context.reply(b"END\r\n"),
            b"on" => context.reply(b"SERVER_ERROR statistics by key prefix are not available\r\n"),
            _ => context.reply(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        },
        b"cachedump" => context.reply(b"CLIENT_ERROR stats cachedump not allowed\r\n"),
        _ => context.reply(ERROR),
    }
}

/// Lines `STAT <name> <value>`, then END.
struct Report(String);

impl Report {
    fn new() -> Self {
        Self(String::with_capacity(2048))
    }

    fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a String can't fail.
        let _ = write!(self.0, "STAT {name} {value}\r\n");
    }

    fn end(mut self) -> String {
        self.0.push_str("END\r\n");
        self.0
    }
}

/// Counters that `stats` does not show: of operations inside, and those that `stats items` shows alone.
const NOT_GENERAL: [&str; 3] = ["copied_bytes", "evicted_nonzero", "outofmemory"];

fn general<O>(context: &Context<'_, O>) -> String {
    let stats = context.store.stats(context.now);
    let (counters, classes) = (stats.counters, stats.class_totals());
    let mut report = Report::new();
    report.stat("pid", std::process::id());
    report.stat("uptime", stats.uptime_s);
    report.stat("time", context.now.unix_s);
    report.stat("version", VERSION);
    report.stat("pointer_size", usize::BITS);
    report.stat("curr_connections", stats.curr_connections);
    report.stat("total_connections", stats.total_connections);
    report.stat("cmd_flush", stats.cmd_flush);
    report.stat("limit_maxbytes", stats.limit_maxbytes);
    report.stat("allocated_bytes", stats.allocated_bytes);
    report.stat("slab_global_page_pool", stats.free_pages);
    report.stat("pending_items", stats.pending_items);
    report.stat("pinned_items", stats.pinned_items);
    report.stat("conn_memory_limit", stats.connections.limit_bytes);
    report.stat("conn_memory", stats.connections.kept_bytes);
    report.stat("conn_memory_highest", stats.connections.highest_bytes);
    report.stat("conn_memory_evictions", stats.connections.evicted);
    report.stat("conn_yields", stats.connections.yields);
    report.stat("request_timeouts", stats.connections.timed_out);
    report.stat("idle_kicks", stats.connections.idle_closed);
    report.stat("crowd_kicks", stats.connections.crowded);
    let counted = counters.entries().chain(classes.entries());
    for (name, value) in counted.filter(|(name, _)| !NOT_GENERAL.contains(name)) {
        report.stat(if name == "evicted" { "evictions" } else { name }, value);
    }
    report.end()
}

fn settings<O>(context: &Context<'_, O>) -> String {
    let config = context.store.config();
    let mut report = Report::new();
    report.stat("maxbytes", config.memory_limit_bytes);
    report.stat("evictions", "on");
    report.stat("verbosity", 0);
    report.stat("detail_enabled", "no");
    report.stat("cas_enabled", "yes");
    report.stat("binding_protocol", "ascii");
    report.stat("item_size_max", config.item_size_max_bytes);
    report.stat("shards", config.shards);
    report.stat("conn_memory_limit", config.connection_memory_bytes);
    report.stat("request_timeout", config.request_timeout.map_or(0, |it| it.as_secs()));
    report.stat("idle_timeout", config.idle_timeout.map_or(0, |it| it.as_secs()));
    report.stat("flush_enabled", "yes");
    report.stat("dump_enabled", "no");
    report.stat("shutdown_command", "no");
    report.stat("hash_algorithm", "siphash13");
    report.stat("slab_reassign", "yes");
    report.stat("track_sizes", "no");
    report.end()
}

fn items<O>(context: &Context<'_, O>) -> String {
    let mut report = Report::new();
    for (index, class) in context.store.stats(context.now).classes.iter().enumerate() {
        if class.items == 0 {
            continue;
        }
        let heads = [("number", class.items), ("age", class.age_s)];
        let counters = class.counters.entries().skip(ClassCounters::COMMANDS);
        for (name, value) in heads.into_iter().chain(counters) {
            report.stat(&format!("items:{}:{name}", index + 1), value);
        }
    }
    report.end()
}

fn slabs<O>(context: &Context<'_, O>) -> String {
    let stats = context.store.stats(context.now);
    let mut report = Report::new();
    let (mut active, mut bytes) = (0, 0);
    for (index, class) in stats.classes.iter().enumerate() {
        if class.pages == 0 {
            continue;
        }
        active += 1;
        bytes += class.pages * crate::store::slab::PAGE_BYTES as u64;
        let total_chunks = class.pages * class.chunks_per_page;
        let chunks = [
            ("chunk_size", class.chunk_bytes),
            ("chunks_per_page", class.chunks_per_page),
            ("total_pages", class.pages),
            ("total_chunks", total_chunks),
            ("used_chunks", class.used_chunks),
            ("free_chunks", total_chunks - class.used_chunks),
        ];
        let counters = class.counters.entries().take(ClassCounters::COMMANDS);
        for (name, value) in chunks.into_iter().chain(counters) {
            report.stat(&format!("{}:{name}", index + 1), value);
        }
    }
    report.stat("active_slabs", active);
    report.stat("total_malloced", bytes);
    report.end()
}
