//! `tailplane top`: a running service, live.
//!
//! ```text
//! tailplane top                   the only service that runs
//! tailplane top kv --slo-us 500   with an objective
//! tailplane top kv --once         one frame as text, for scripts
//! ```

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};

use service::watch::screen::{Screen, text_of};
use service::watch::{self, Service, ServiceView, Snapshot, events};

/// Arguments of `tailplane top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For each elastic thread: load (share of time in cycles that did something), packets, batch \
size, IX's estimate of the queueing delay (ceil(Q / B) x iteration time), turns stolen of other threads, kicks sent. For \
each flow group a character: its home, bright where packets came. Events as they happen: moves, threads that are granted \
or parked, an application that does not return. Looking costs the service nothing: it is read from memory that it writes \
anyway. Keys: q quits, p pauses."
)]
pub struct Args {
    /// A service's name, or its control socket's path; the only one where nothing is said.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The objective that the estimate is held against, in microseconds.
    #[arg(long, value_name = "N")]
    pub slo_us: Option<u64>,
    /// Milliseconds from one look to the next.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub interval_ms: u64,
    /// Print one frame as text, and end.
    #[arg(long)]
    pub once: bool,
    /// With --once: the frame's width and height.
    #[arg(long, value_name = "WxH", default_value = "120x40", value_parser = size, requires = "once")]
    pub size: (u16, u16),
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..=1_000).contains(number));
    let both = text.split_once('x').and_then(|(w, h)| Some((number(w)?, number(h)?)));
    both.ok_or_else(|| "allowed: WIDTHxHEIGHT, 1 to 1000 each, as in 120x40".to_owned())
}

/// A service that is looked at again and again.
struct Watching {
    service: Service,
    last: Snapshot,
    began: Instant,
    screen: Screen,
}

impl Watching {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let service = watch::one(args.name.as_deref())?;
        let screen = Screen { slo_us: args.slo_us, ..Screen::default() };
        Ok(Self { last: service.snapshot(), service, began: Instant::now(), screen })
    }

    fn look(&mut self) {
        let now = self.service.snapshot();
        let at_s = self.began.elapsed().as_secs_f64();
        let happened = events::between(&self.last, &now);
        happened.into_iter().for_each(|event| self.screen.note(at_s, event));
        let view = ServiceView::between(&self.service.description, &self.last, &now);
        self.screen.view = Some(view);
        self.last = now;
    }

    /// Whether the service still answers. What it shows stays readable when it has gone.
    fn is_there(&mut self) -> bool {
        self.service.client.answers().is_ok()
    }
}

/// Runs `tailplane top`.
///
/// # Errors
/// The service cannot be reached; the terminal is none.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interval = Duration::from_millis(args.interval_ms);
    if args.once {
        print!("{}", frame(&mut Watching::new(args)?, interval, args.size)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!(
            "the output is no terminal: `tailplane top --once` prints one frame as text, `tailplane status` a table"
        );
    }
    let mut watching = Watching::new(args)?;
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let ended = live(&mut watching, &mut terminal, interval);
    ratatui::try_restore().context("giving the terminal back")?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// One frame as text.
fn frame(watching: &mut Watching, interval: Duration, size: (u16, u16)) -> anyhow::Result<String> {
    std::thread::sleep(interval);
    watching.look();
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).context("drawing")?;
    terminal.draw(|frame| watching.screen.draw(frame)).context("drawing")?;
    Ok(text_of(terminal.backend().buffer()))
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Quit,
    Pause,
}

fn asked(key: KeyEvent) -> Asked {
    let is_interrupt =
        key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    match key.code {
        _ if key.kind == KeyEventKind::Release => Asked::Nothing,
        _ if is_interrupt => Asked::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Asked::Quit,
        KeyCode::Char('p' | ' ') => Asked::Pause,
        _ => Asked::Nothing,
    }
}

fn live(
    watching: &mut Watching,
    terminal: &mut DefaultTerminal,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| watching.screen.draw(frame)).context("drawing")?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left).context("reading the keyboard")? {
            let Event::Key(key) = event::read().context("reading the keyboard")? else { continue };
            match asked(key) {
                Asked::Quit => return Ok(()),
                Asked::Pause => watching.screen.is_paused = !watching.screen.is_paused,
                Asked::Nothing => {}
            }
            continue;
        }
        next = Instant::now() + interval;
        if !watching.is_there() {
            bail!("the service '{}' has ended", watching.service.description.name);
        }
        if !watching.screen.is_paused {
            watching.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_sizes() {
        let key = |code| asked(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!([key(KeyCode::Char('q')), key(KeyCode::Esc)], [Asked::Quit; 2]);
        assert_eq!(
            [key(KeyCode::Char('p')), key(KeyCode::Char('x'))],
            [Asked::Pause, Asked::Nothing]
        );
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!((asked(interrupt), key(KeyCode::Char('c'))), (Asked::Quit, Asked::Nothing));
        assert_eq!(size("120x40"), Ok((120, 40)));
        for wrong in ["", "120", "0x5", "5x", "1001x5", "axb"] {
            assert!(size(wrong).is_err_and(|error| error.contains("120x40")), "{wrong}");
        }
    }
}
