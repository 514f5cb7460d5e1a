//! What is shown again and again: on a terminal, or line by line for scripts.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, Result};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

/// Something that can be looked at.
pub(super) trait Shown {
    /// Looks again.
    fn refresh(&mut self) -> Result<()>;
    /// Draws what was seen last.
    fn draw(&mut self, frame: &mut Frame<'_>);
    /// Handles a key; whether to go on.
    fn key(&mut self, key: KeyCode) -> bool;
    /// What was seen last, for scripts.
    fn text(&self, json: bool) -> Result<String>;
}

/// How often, and how.
pub(super) struct Manner {
    pub(super) interval: Duration,
    /// How many looks; `None` for no end.
    pub(super) looks: Option<u64>,
    pub(super) once: bool,
    pub(super) json: bool,
    /// How long it takes until a first look can say something.
    pub(super) before_first: Duration,
}

/// How long keys wait at most while something else is looked at.
const SLICE: Duration = Duration::from_millis(100);

pub(super) fn show(shown: &mut dyn Shown, manner: &Manner) -> Result<()> {
    if manner.once || manner.json || !std::io::stdout().is_terminal() {
        return print(shown, manner);
    }
    let stop = stop_signals().into_diagnostic()?;
    // Puts the terminal back in order after a panic, too.
    let mut terminal = ratatui::try_init().into_diagnostic()?;
    let result = draw(shown, manner, &stop, &mut terminal);
    ratatui::restore();
    result
}

/// Set when the process is asked to end.
fn stop_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Prints looks, one after the other.
fn print(shown: &mut dyn Shown, manner: &Manner) -> Result<()> {
    let mut left = if manner.once { Some(1) } else { manner.looks };
    let mut pause = manner.before_first;
    while left != Some(0) {
        std::thread::sleep(pause);
        pause = manner.interval;
        shown.refresh()?;
        if !crate::output::print_to_reader(shown.text(manner.json)?.as_bytes())? {
            return Ok(());
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn draw(
    shown: &mut dyn Shown,
    manner: &Manner,
    stop: &AtomicBool,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<()> {
    let mut next = Instant::now();
    let mut left = manner.looks;
    while !stop.load(Ordering::Relaxed) && left != Some(0) {
        if Instant::now() >= next {
            next = Instant::now() + manner.interval;
            shown.refresh()?;
            left = left.map(|left| left - 1);
        }
        terminal.draw(|frame| shown.draw(frame)).into_diagnostic()?;
        let wait = next.saturating_duration_since(Instant::now()).min(SLICE);
        match event::poll(wait) {
            // A signal has come.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).into_diagnostic(),
            Ok(false) => continue,
            Ok(true) => {}
        }
        if let Event::Key(key) = event::read().into_diagnostic()?
            && key.kind != KeyEventKind::Release
        {
            let interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || !shown.key(key.code) {
                return Ok(());
            }
        }
    }
    Ok(())
}
