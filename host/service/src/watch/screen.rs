//! A service as a terminal's screen.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::ServiceView;
use super::render::{row, stack};

/// Events that are kept to be shown.
const EVENTS_MAX: usize = 256;
/// A bar's cells.
const BAR: usize = 10;
/// Flow groups in a line.
const GROUPS_IN_LINE: usize = 64;
/// Threads, and their flow groups, by colour.
const COLORS: [Color; 8] = [
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::Red,
    Color::White,
    Color::Gray,
];

/// What is on the screen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// The service; none before two readings.
    pub view: Option<ServiceView>,
    /// The objective, in microseconds.
    pub slo_us: Option<u64>,
    /// What has happened, the latest last, each with seconds since the beginning.
    pub events: VecDeque<(f64, String)>,
    /// Whether it stands still.
    pub is_paused: bool,
}

impl Screen {
    /// Something has happened.
    pub fn note(&mut self, at_s: f64, event: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((at_s, event));
    }

    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let Some(view) = &self.view else {
            frame.render_widget(Paragraph::new("reading ..."), frame.area());
            return;
        };
        let groups = view.homes.len().div_ceil(GROUPS_IN_LINE) as u16;
        let threads = view.threads.len() as u16 + 1;
        let counters: Vec<Line<'_>> = stack(view).into_iter().map(Line::from).collect();
        let [head, table, homes, counts, events, keys] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(threads + 1),
            Constraint::Length(groups + 2),
            // Where there is little room, events have it.
            Constraint::Max(counters.len() as u16 + 1),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(view)), head);
        frame.render_widget(thread_table(view), table);
        frame.render_widget(Paragraph::new(home_lines(view)), homes);
        frame.render_widget(Paragraph::new(counters), counts);
        frame.render_widget(Paragraph::new(self.event_lines(events)), events);
        frame.render_widget(Paragraph::new(self.keys()).dim(), keys);
    }

    fn head(&self, view: &ServiceView) -> Vec<Line<'static>> {
        let ServiceView { name, pid, scheduler, domain, driver, batch_max, .. } = view;
        let what =
            format!("  process {pid}, {scheduler}, domain {domain}, {driver}, B = {batch_max}");
        vec![
            Line::from(vec![Span::raw(name.clone()).bold(), Span::raw(what)]),
            self.objective(view),
        ]
    }

    /// The estimate of the queueing delay beside the objective.
    fn objective(&self, view: &ServiceView) -> Line<'static> {
        let packets: f64 = view.threads.iter().map(|thread| thread.packets_per_s).sum();
        let rate = format!("{packets:.0} packets/s; ");
        let Some(p99) = view.queueing_delay_p99_us() else {
            return Line::from(format!("{rate}no packets waited"));
        };
        let estimate = format!("{rate}queueing delay p99 under {p99} us (estimate)");
        match self.slo_us {
            None => Line::from(estimate),
            Some(slo) if p99 <= slo => {
                Line::from(vec![estimate.into(), format!("; SLO {slo} us: met").fg(Color::Green)])
            }
            Some(slo) => {
                let missed = format!("; SLO {slo} us: MISSED").fg(Color::Red).bold();
                Line::from(vec![estimate.into(), missed])
            }
        }
    }

    fn event_lines(&self, area: Rect) -> Vec<Line<'static>> {
        let room = usize::from(area.height).saturating_sub(1);
        let from = self.events.len().saturating_sub(room);
        let mut lines = vec![Line::from("events").bold()];
        if self.events.is_empty() {
            lines.push(Line::from("  none yet").dim());
        }
        let line = |(at, event): &(f64, String)| Line::from(format!("  {at:7.1} s  {event}"));
        lines.extend(self.events.iter().skip(from).map(line));
        lines
    }

    fn keys(&self) -> &'static str {
        match self.is_paused {
            true => "paused    p: go on    q: quit",
            false => "p: pause    q: quit",
        }
    }
}

/// Where [`row`] has the state.
const STATE: usize = 2;

fn thread_table(view: &ServiceView) -> Table<'static> {
    let header = [
        "thread",
        "cpu",
        "state",
        "load",
        "",
        "packets/s",
        "batch",
        "delay us",
        "p99 <",
        "steals/s",
        "kicks/s",
        "conns",
        "groups",
    ];
    let widths = [6, 4, 9, BAR as u16, 5, 10, 6, 9, 7, 9, 8, 7, 6].map(Constraint::Length);
    let rows = view.threads.iter().map(|thread| {
        let color = color_of(thread.thread);
        let mut texts = row(thread);
        // What there is no room for is among the events.
        texts[STATE] = texts[STATE].split(',').next().unwrap_or_default().to_owned();
        let filled = (thread.load.unwrap_or(0.0) * BAR as f64).round() as usize;
        let bar = format!("{}{}", "#".repeat(filled.min(BAR)), ".".repeat(BAR - filled.min(BAR)));
        let mut cells = texts.map(Cell::from).to_vec();
        cells[0] = std::mem::take(&mut cells[0]).fg(color);
        cells.insert(STATE + 1, Cell::from(bar).fg(color));
        let dimmed = if thread.state == "parked" { Modifier::DIM } else { Modifier::empty() };
        Row::new(cells).style(Style::new().add_modifier(dimmed))
    });
    Table::new(rows, widths).header(Row::new(header).bold())
}

/// One character for each flow group: its home. Those that got packets are bright.
fn home_lines(view: &ServiceView) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("flow groups: a character each, their home").bold()];
    let cells: Vec<Span<'static>> = view
        .homes
        .iter()
        .zip(view.group_packets_per_s.iter().copied().chain(std::iter::repeat(0.0)))
        .map(|(home, packets)| {
            let Some(thread) = *home else { return Span::raw("?").dim() };
            let digit = char::from_digit(u32::from(thread) % 36, 36).unwrap_or('?');
            let cell = Span::raw(digit.to_string()).fg(color_of(thread));
            if packets > 0.0 { cell.bold() } else { cell.dim() }
        })
        .collect();
    for (number, line) in cells.chunks(GROUPS_IN_LINE).enumerate() {
        let first = Span::raw(format!("{:4}  ", number * GROUPS_IN_LINE)).dim();
        lines.push(Line::from_iter([first].into_iter().chain(line.iter().cloned())));
    }
    lines
}

fn color_of(thread: u16) -> Color {
    COLORS[usize::from(thread) % COLORS.len()]
}

/// A screen's characters without their colours, line by line.
pub fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(width).map(|line| line.concat().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::watch::sample::tests::{described, two_readings};

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        text_of(terminal.backend().buffer())
    }

    fn screen() -> Screen {
        let (before, after) = two_readings();
        let view = Some(ServiceView::between(&described(2), &before, &after));
        Screen { view, ..Screen::default() }
    }

    #[test]
    fn a_screen_has_threads_homes_and_events() {
        let mut screen = screen();
        screen.note(1.25, "4 flow groups moved from thread 1 to 0".into());
        let text = drawn(&screen, 120, 20);
        for part in [
            "kv  process 4711, work-conserving, domain inline, shm, B = 64",
            "3200 packets/s; queueing delay p99 under 16384 us (estimate)\n",
            "0      3    running   #####..... 50 %  3200       32.0   11000.0",
            "1      any  parked    .......... 0 %",
            "   0  0000",
            "      1.2 s  4 flow groups moved from thread 1 to 0",
            "p: pause    q: quit",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn the_objective_is_met_or_missed() {
        let met = Screen { slo_us: Some(20_000), ..screen() };
        assert!(drawn(&met, 100, 20).contains("SLO 20000 us: met"));
        let missed = Screen { slo_us: Some(500), is_paused: true, ..screen() };
        let text = drawn(&missed, 100, 20);
        assert!(text.contains("SLO 500 us: MISSED") && text.contains("paused"), "{text}");
        assert!(drawn(&Screen::default(), 100, 20).contains("reading"));
    }

    #[test]
    fn a_screen_of_any_size_can_be_drawn() {
        let mut screen = screen();
        (0..1_000).for_each(|n| screen.note(f64::from(n), format!("event {n}")));
        assert_eq!(screen.events.len(), EVENTS_MAX);
        for (width, height) in [(1, 1), (10, 3), (40, 8), (80, 24), (300, 100)] {
            drawn(&screen, width, height);
        }
        assert!(drawn(&screen, 80, 30).contains("event 999"), "the latest are shown");
    }

    #[test]
    fn many_threads_and_unknown_homes_are_shown() {
        let mut screen = screen();
        let view = screen.view.as_mut().expect("there is one");
        view.homes = (0..128).map(|group| (group != 5).then_some(group % 40)).collect();
        let text = drawn(&screen, 100, 20);
        assert!(text.contains("   0  01234?6789abcdefghijklmnopqrstuvwxyz0123"), "{text}");
        assert!(text.contains("\n  64  "), "{text}");
    }
}
