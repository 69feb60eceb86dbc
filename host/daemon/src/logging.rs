//! Log lines: `key=value` for people, or one JSON object a line.

use std::fmt;
use std::io::IsTerminal;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{LogConfig, LogFormat};
use crate::machine::unix_ms;

/// Writes all events of this process to standard error from now on. Once in a process; later calls change nothing.
pub fn begin(config: &LogConfig) {
    // Its names are those of the levels, whatever their case.
    let level = config.level.as_ref().parse().unwrap_or(Level::INFO);
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second subscriber in one process, as in tests, is refused: the first one stays.
    let _ = match config.format {
        LogFormat::Json => {
            tracing::subscriber::set_global_default(lines.event_format(Json).finish())
        }
        // The journal writes the time itself.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            let lines = lines.without_time().with_target(false);
            tracing::subscriber::set_global_default(lines.finish())
        }
        LogFormat::Text => {
            tracing::subscriber::set_global_default(lines.with_target(false).finish())
        }
    };
}

/// One JSON object a line: `time_ms`, `level`, and the event's own fields.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(serde_json::Map::new());
        fields.0.insert("time_ms".to_owned(), unix_ms().into());
        let level = event.metadata().level().as_str().to_lowercase();
        fields.0.insert("level".to_owned(), level.into());
        event.record(&mut fields);
        writeln!(writer, "{}", serde_json::Value::Object(fields.0))
    }
}

struct Fields(serde_json::Map<String, serde_json::Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("whole").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_object_whatever_it_says() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(Json)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let detail = "reason=\"a\nb\"".to_owned();
            tracing::warn!(service = "kv", kind = "refused", detail);
            tracing::info!(count = 3u64, "words");
        });
        let text = String::from_utf8(lines.0.lock().expect("whole").clone()).expect("UTF-8");
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(objects.len(), 2, "{text}");
        assert_eq!(objects[0]["level"], "warn");
        assert_eq!(objects[0]["detail"], "reason=\"a\nb\"");
        assert_eq!((&objects[1]["count"], &objects[1]["message"]), (&3.into(), &"words".into()));
    }
}
