//! `outboard devices`.

use std::fmt::Write as _;

use miette::{IntoDiagnostic, Result};
use outboard_client::target::{Target, Targets, VARIABLE};
use outboard_supervisor::admin::{Held, Session};
use outboard_wire::platform::Device;
use serde::Serialize;

use crate::admin::AdminArgs;
use crate::at_once::at_once;
use crate::failure::Failure;
use crate::gauges::{Gauge, Gauges};
use crate::sessions::text;
use crate::{credentials, probe, started};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The servers, HOST[:PORT],…; `local` is this machine's own GPUs, and on ssh://[USER@]HOST
    /// a server is started.
    #[arg(long, env = VARIABLE, default_value = "localhost")]
    server: Targets,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A server and its devices.
#[derive(Serialize)]
pub(crate) struct Listing {
    pub(crate) server: String,
    /// The server's release.
    pub(crate) software: String,
    /// The name of its driver library.
    pub(crate) driver: String,
    /// As `cuDriverGetVersion` says it.
    pub(crate) driver_version: u32,
    pub(crate) transport: &'static str,
    pub(crate) devices: Vec<Row>,
}

/// A device, and what is known of it at this moment.
#[derive(Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) gauge: Gauge,
    /// Sessions that have a context on it; told only on the server's machine, to its user and root.
    pub(crate) sessions: Option<usize>,
    /// `shared` or `exclusive`; told to the same.
    pub(crate) sharing: Option<String>,
    /// Its holder, if it is exclusive; told to the same.
    pub(crate) held: Option<Held>,
}

pub(crate) fn devices(args: &Args) -> Result<()> {
    args.credentials.set();
    let (servers, _started) = started::start(args.server.clone())?;
    let (mut listings, mut failed) = (Vec::new(), Ok(()));
    let names = args.server.servers().iter().map(|server| server.address.to_string());
    let named: Vec<_> = servers.servers().iter().zip(names).collect();
    for answer in at_once(&named, |(server, name)| listing(server, name)) {
        match answer {
            Ok(listing) => listings.push(listing),
            // The others are shown all the same; the first failure is the command's.
            Err(error) => failed = failed.and(Err(error.into())),
        }
    }
    let json = match listings.as_slice() {
        [one] if servers.servers().len() == 1 => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    };
    let text = if args.json {
        json.into_diagnostic()? + "\n"
    } else {
        listings.iter().map(table).collect()
    };
    if !listings.is_empty() {
        crate::output::print(&text)?;
    }
    failed
}

/// Asks a server; `name` is what it was called.
pub(crate) fn listing(server: &Target, name: &str) -> Result<Listing, Failure> {
    let offer = probe::probe(server)?;
    // Of a server that does not say, the rest is worth showing.
    let read = Gauges::open(server).and_then(|gauges| gauges.read()).unwrap_or_default();
    // Its socket for administrators, if it is this machine's and this user may use it.
    let admin = AdminArgs::of(server.clone()).connect().ok();
    let admin = admin.and_then(|mut admin| admin.listing().ok());
    let on = |index: u32| {
        let uses = |session: &&Session| {
            session.memory.iter().any(|memory| memory.device == index && memory.context)
        };
        admin.as_ref().map(|listing| listing.sessions.iter().filter(uses).count())
    };
    let sharing = |index: u32| {
        let modes = &admin.as_ref()?.sharing;
        modes.get(&index.to_string()).or(modes.get("*")).cloned()
    };
    let held = |index: u32| admin.as_ref()?.held.iter().find(|held| held.device == index).cloned();
    let row = |(index, device): (usize, &Device)| {
        let known = Gauge::of(index, device);
        let gauge =
            read.get(index).filter(|read| read.uuid == known.uuid).cloned().unwrap_or(known);
        Row {
            gauge,
            sessions: on(device.id.ordinal()),
            sharing: sharing(index as u32),
            held: held(index as u32),
        }
    };
    Ok(Listing {
        server: name.to_owned(),
        software: offer.software,
        driver: offer.platform.driver_name,
        driver_version: offer.platform.driver_version,
        transport: offer.transport,
        devices: offer.platform.devices.iter().enumerate().map(row).collect(),
    })
}

fn table(listing: &Listing) -> String {
    let version = (listing.driver_version / 1000, listing.driver_version % 1000 / 10);
    let mut lines = format!(
        "{} over {}: {}, CUDA {}.{}\n",
        listing.server, listing.transport, listing.driver, version.0, version.1
    );
    for Row { gauge, sessions, sharing, held } in &listing.devices {
        let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let _ = write!(
            lines,
            "  /{}  {}  compute capability {}  {:.1} GiB",
            gauge.index,
            gauge.name,
            gauge.compute_capability,
            gibibytes(gauge.memory_bytes)
        );
        if let Some(free) = gauge.memory_free_bytes {
            let _ = write!(lines, ", {:.1} GiB free", gibibytes(free));
        }
        if let Some(sessions) = sessions {
            let _ = write!(lines, "  {sessions} session{}", if *sessions == 1 { "" } else { "s" });
        }
        if let Some(sharing) = sharing {
            let _ = write!(lines, "  {sharing}");
        }
        if let Some(held) = held {
            let _ = write!(lines, ": {}", text::holder(held, "for"));
        }
        let _ = writeln!(lines, "  {}", gauge.uuid);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_line() {
        let device = Device {
            name: "NVIDIA H200".into(),
            uuid: std::array::from_fn(|i| i as u8 * 17),
            total_memory: 141 << 30,
            attributes: vec![(75, 9), (76, 0)],
            ..Device::default()
        };
        let listing = Listing {
            server: "gpu1:9470".into(),
            software: "0.1.0".into(),
            driver: "libcuda.so.1".into(),
            driver_version: 13000,
            transport: "tcp",
            devices: vec![Row {
                gauge: Gauge { memory_free_bytes: Some(100 << 30), ..Gauge::of(0, &device) },
                sessions: Some(2),
                sharing: Some("exclusive".into()),
                held: Some(Held { device: 0, owner: "alice".into(), seconds: 61.0 }),
            }],
        };
        assert_eq!(
            table(&listing),
            "gpu1:9470 over tcp: libcuda.so.1, CUDA 13.0\n  /0  NVIDIA H200  compute capability 9.0  141.0 GiB, 100.0 GiB free  2 sessions  exclusive: alice for 1m01s  \
             GPU-00112233-4455-6677-8899-aabbccddeeff\n"
        );
    }
}
