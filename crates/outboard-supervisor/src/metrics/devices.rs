//! Gauges of the devices. A gauge without a value has no line.

use std::fmt::Error;
use std::time::Duration;

use prometheus_client::metrics::MetricType;

use super::super::gauges::Read;
use super::Pen;
use outboard_control::messages::Gauge;

/// A value of a device, if it is known.
type Value = fn(&Gauge) -> Option<f64>;

/// Older values are not shown.
const STALE: Duration = Duration::from_secs(60);

/// Names, meanings and sources of the gauges.
const TOLD: [(&str, &str, Value); 5] = [
    ("outboard_device_memory_total_bytes", "Memory that the device has", |device| {
        Some(device.memory as f64)
    }),
    (
        "outboard_device_memory_used_bytes",
        "Memory of the device that is in use, by whomever",
        |device| device.now.memory_used.map(|bytes| bytes as f64),
    ),
    (
        "outboard_device_utilization_ratio",
        "Part of the time in which the device computed, lately",
        |device| device.now.utilisation.map(|percent| f64::from(percent) / 100.0),
    ),
    ("outboard_device_temperature_celsius", "How warm the device is", |device| {
        device.now.temperature.map(f64::from)
    }),
    ("outboard_device_power_watts", "Power that the device takes", |device| {
        device.now.milliwatts.map(|milliwatts| f64::from(milliwatts) / 1000.0)
    }),
];

pub(super) fn encode(read: &Read, pen: &mut Pen<'_>) -> Result<(), Error> {
    let age = read.when.elapsed();
    pen.gauge(
        "outboard_device_reading_age_seconds",
        "Since it was said how the devices do",
        &age.as_secs_f64(),
    )?;
    if age > STALE {
        return Ok(());
    }
    let mut info = pen.begin("outboard_device", "The devices", MetricType::Info)?;
    for device in &read.devices {
        let labels = [
            ("device", device.ordinal.to_string()),
            ("uuid", device.uuid.clone()),
            ("name", device.name.clone()),
        ];
        info.encode_info(&labels)?;
    }
    for (name, help, value) in TOLD {
        let known = read.devices.iter().filter_map(|device| Some((device.ordinal, value(device)?)));
        let mut known = known.peekable();
        if known.peek().is_none() {
            continue;
        }
        let mut metric = pen.begin(name, help, MetricType::Gauge)?;
        for (ordinal, value) in known {
            metric.encode_family(&[("device", ordinal.to_string())])?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
