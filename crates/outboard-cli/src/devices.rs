//! `outboard devices`.

use std::fmt::Write as _;

use miette::{IntoDiagnostic, Result};
use outboard_client::target::{Target, VARIABLE};
use outboard_wire::platform::{Device, uuid_text};
use serde::Serialize;

use crate::{credentials, probe};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: (u32, u32) = (75, 76);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, HOST[:PORT].
    #[arg(long, env = VARIABLE, default_value = "localhost")]
    server: Target,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing {
    server: String,
    software: String,
    driver: String,
    driver_version: u32,
    transport: &'static str,
    devices: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    index: usize,
    name: String,
    uuid: String,
    compute_capability: String,
    memory_bytes: u64,
}

pub(crate) fn devices(args: &Args) -> Result<()> {
    args.credentials.set();
    let offer = probe::probe(&args.server)?;
    let listing = Listing {
        server: args.server.address.to_string(),
        software: offer.software,
        driver: offer.platform.driver_name,
        driver_version: offer.platform.driver_version,
        transport: offer.transport,
        devices: offer.platform.devices.iter().enumerate().map(|(index, device)| row(index, device)).collect(),
    };
    let text =
        if args.json { serde_json::to_string_pretty(&listing).into_diagnostic()? + "\n" } else { table(&listing) };
    crate::output::print(&text)
}

fn row(index: usize, device: &Device) -> Row {
    let part = |attribute| device.attribute(attribute).unwrap_or(0);
    Row {
        index,
        name: device.name.clone(),
        uuid: uuid_text(&device.uuid),
        compute_capability: format!("{}.{}", part(CAPABILITY.0), part(CAPABILITY.1)),
        memory_bytes: device.total_memory,
    }
}

fn table(listing: &Listing) -> String {
    let version = (listing.driver_version / 1000, listing.driver_version % 1000 / 10);
    let mut text = format!(
        "{} over {}: {}, CUDA {}.{}\n",
        listing.server, listing.transport, listing.driver, version.0, version.1
    );
    for row in &listing.devices {
        let gibibytes = row.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            text,
            "  /{}  {}  compute capability {}  {gibibytes:.1} GiB  {}",
            row.index, row.name, row.compute_capability, row.uuid
        );
    }
    text
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
            devices: vec![row(0, &device)],
        };
        assert_eq!(
            table(&listing),
            "gpu1:9470 over tcp: libcuda.so.1, CUDA 13.0\n  /0  NVIDIA H200  compute capability 9.0  141.0 GiB  \
             GPU-00112233-4455-6677-8899-aabbccddeeff\n"
        );
    }
}
