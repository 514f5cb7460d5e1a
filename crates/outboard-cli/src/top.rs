//! `outboard top`: the sessions of a server, live.

mod recent;
mod state;
mod view;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, Result};
use outboard_client::target::Target;
use outboard_supervisor::admin::Admin;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde::Serialize;

use crate::admin;
use crate::gauges::{Gauge, Gauges};
use crate::sessions::{Rated, Rates};
use state::{Sort, TopState};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: admin::AdminArgs,
    /// Seconds between two updates.
    #[arg(long, short, default_value_t = 1.0, value_name = "SECONDS")]
    interval: f64,
    /// The order of sessions.
    #[arg(long, default_value = "calls", value_name = "calls|bytes|memory|waiting|age|owner")]
    sort: Sort,
    /// Print once and end.
    #[arg(long)]
    once: bool,
    /// Print JSON, an object for each update, instead of drawing.
    #[arg(long)]
    json: bool,
    /// End after this many updates.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// One look at everything.
#[derive(Serialize, Default, Clone)]
pub(crate) struct Look {
    pub(crate) server: Rated,
    pub(crate) devices: Vec<Gauge>,
}

/// How long keys wait at most while something else is looked at.
const SLICE: Duration = Duration::from_millis(100);

pub(crate) fn top(args: &Args) -> Result<()> {
    let mut admin = args.admin.connect()?;
    let listing = admin.listing().map_err(|error| admin::failed(&error))?;
    let mut rates = Rates::default();
    let socket = listing.socket.as_ref().and_then(|path| format!("unix:{path}").parse().ok());
    let server = socket.unwrap_or_else(|| args.admin.server.clone());
    rates.take(listing);
    let interval =
        Duration::try_from_secs_f64(args.interval.clamp(0.1, 3600.0)).into_diagnostic()?;
    let devices = watch_devices(server, interval);
    if args.once || args.json || !std::io::stdout().is_terminal() {
        let looks = if args.once { Some(1) } else { args.count };
        return print(args, &mut admin, &mut rates, &devices, interval, looks);
    }
    let stop = stop_signals().into_diagnostic()?;
    // Puts the terminal back in order after a panic, too.
    let mut terminal = ratatui::try_init().into_diagnostic()?;
    let mut screen = Screen { state: TopState::new(args.sort), stop, interval, looks: args.count };
    let result = screen.run(&mut terminal, &mut admin, &mut rates, &devices);
    ratatui::restore();
    result
}

/// Asks how devices do, in a thread of its own: a busy server's NVML may take its time.
fn watch_devices(server: Target, interval: Duration) -> mpsc::Receiver<Vec<Gauge>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut gauges = Gauges::open(&server);
        loop {
            let devices = gauges.as_ref().and_then(Gauges::read);
            if devices.is_none() {
                gauges = Gauges::open(&server);
            }
            // Nobody looks any more when the process ends.
            if send.send(devices.unwrap_or_default()).is_err() {
                return;
            }
            std::thread::sleep(interval);
        }
    });
    receive
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

fn look(admin: &mut Admin, rates: &mut Rates) -> Result<Rated> {
    Ok(rates.take(admin.listing().map_err(|error| admin::failed(&error))?))
}

/// Prints looks, one after the other.
fn print(
    args: &Args,
    admin: &mut Admin,
    rates: &mut Rates,
    devices: &mpsc::Receiver<Vec<Gauge>>,
    interval: Duration,
    looks: Option<u64>,
) -> Result<()> {
    let mut state = TopState::new(args.sort);
    let mut gauges = Vec::new();
    let mut left = looks;
    while left != Some(0) {
        std::thread::sleep(if args.once {
            interval.min(Duration::from_millis(500))
        } else {
            interval
        });
        // The first answer is waited for: it is what was asked.
        if gauges.is_empty() {
            gauges = devices.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
        }
        gauges = devices.try_iter().last().unwrap_or(gauges);
        let server = look(admin, rates)?;
        state.take(Look { server, devices: gauges.clone() });
        let text = if args.json {
            serde_json::to_string(state.look()).into_diagnostic()? + "\n"
        } else {
            view::text(&state)
        };
        crate::output::print(&text)?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// The terminal's side.
struct Screen {
    state: TopState,
    stop: Arc<AtomicBool>,
    interval: Duration,
    looks: Option<u64>,
}

impl Screen {
    fn run(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        admin: &mut Admin,
        rates: &mut Rates,
        devices: &mpsc::Receiver<Vec<Gauge>>,
    ) -> Result<()> {
        let mut next = Instant::now();
        let mut gauges = Vec::new();
        while !self.stop.load(Ordering::Relaxed) && self.looks != Some(0) {
            gauges = devices.try_iter().last().unwrap_or(gauges);
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                let server = look(admin, rates)?;
                self.state.take(Look { server, devices: gauges.clone() });
                self.looks = self.looks.map(|looks| looks - 1);
            }
            terminal.draw(|frame| view::draw(frame, &mut self.state)).into_diagnostic()?;
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
                if interrupt || !self.state.key(key.code) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
