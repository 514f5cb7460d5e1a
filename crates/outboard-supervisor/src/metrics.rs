//! Metrics for monitoring systems, in the text format of OpenMetrics. They contain names of owners,
//! so not everybody should read them.

pub(crate) mod config;
mod devices;
mod http;
mod names;
mod process;

use std::collections::BTreeMap;
use std::fmt::Error;

use outboard_wire::handshake::VERSION;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use super::about::Kind;
use super::gauges::Read;
use super::supervisor::Supervisor;
use super::tally::{QUEUE_BOUNDS, QueueTimes};
pub use config::{Config, MetricsError};
pub use http::Listener;
use outboard_control::meter::{CLASSES, ERRORS, Reading, WAIT_BOUNDS, WAYS};
use process::Process;

/// Directions of bytes, as a meter numbers them.
const DIRECTIONS: [&str; 2] = ["to_device", "from_device"];

/// All metrics at one moment.
#[derive(Debug)]
struct Snapshot {
    owners: BTreeMap<String, Reading>,
    /// By owner and state.
    sessions: BTreeMap<(String, &'static str), u64>,
    most_sessions: u64,
    warm: u64,
    warm_wanted: u64,
    /// By device.
    warm_memory: BTreeMap<u32, u64>,
    warm_host_memory: u64,
    /// By which worker it was.
    given: BTreeMap<&'static str, u64>,
    starts: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    queued: u64,
    queue: QueueTimes,
    process: Process,
    /// How the devices do, where anybody knows.
    devices: Option<Read>,
}

/// The metrics as they stand.
fn metrics(supervisor: &Supervisor, devices: Option<Read>) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot { devices, ..Snapshot::take(supervisor) }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Snapshot {
    fn take(supervisor: &Supervisor) -> Snapshot {
        let mut totals = supervisor.sessions.totals();
        let mut sessions = BTreeMap::new();
        supervisor.sessions.each(|shown| {
            if shown.about.kind == Kind::Session {
                let owner = totals.name(&shown.about.identity.owner).to_owned();
                *sessions.entry((owner, shown.state)).or_default() += 1;
            }
        });
        let owners = totals.into_owners();
        for owner in owners.keys() {
            // An owner whose sessions have ended shows zero rather than the last value.
            sessions.entry((owner.clone(), "serving")).or_default();
        }
        let tally = &supervisor.tally;
        Snapshot {
            owners,
            sessions,
            most_sessions: supervisor.most_sessions() as u64,
            warm: supervisor.warm.ready() as u64,
            warm_wanted: supervisor.warm.wanted(supervisor.sessions_left()) as u64,
            warm_memory: supervisor.warm.device_memory(),
            warm_host_memory: supervisor.warm.host_memory(),
            given: tally.workers_given(),
            starts: tally.starts(),
            refusals: tally.refusals(),
            queued: supervisor.queue.waiting() as u64,
            queue: tally.queue_times(),
            process: Process::look(),
            devices: None,
        }
    }

    /// Bytes held on each device by each owner: of devices that anybody has held memory of.
    fn memory(&self) -> impl Iterator<Item = (Vec<(&'static str, String)>, u64)> {
        let used = |device: &usize| self.owners.values().any(|reading| reading.peak[*device] > 0);
        let devices: Vec<usize> = (0..outboard_control::meter::DEVICES).filter(used).collect();
        self.owners.iter().flat_map(move |(owner, reading)| {
            let row = |device: usize| {
                (
                    vec![("owner", owner.clone()), ("device", device.to_string())],
                    reading.held[device],
                )
            };
            devices.clone().into_iter().map(row).collect::<Vec<_>>()
        })
    }

    fn named(
        &self,
        label: &'static str,
        names: &'static [&'static str],
        of: impl Fn(&Reading) -> Vec<u64>,
    ) -> Rows {
        let mut rows = Vec::new();
        for (owner, reading) in &self.owners {
            for (name, count) in names.iter().zip(of(reading)) {
                rows.push((vec![("owner", owner.clone()), (label, (*name).to_owned())], count));
            }
        }
        rows
    }

    fn bytes(&self) -> Rows {
        let mut rows = Vec::new();
        for (owner, reading) in &self.owners {
            for (direction, ways) in DIRECTIONS.iter().zip(&reading.bytes) {
                for (way, count) in WAYS.iter().zip(ways) {
                    let labels =
                        [("owner", owner.as_str()), ("direction", direction), ("way", way)];
                    rows.push((
                        labels.map(|(name, value)| (name, value.to_owned())).to_vec(),
                        *count,
                    ));
                }
            }
        }
        rows
    }
}

/// Labels and a count.
type Rows = Vec<(Vec<(&'static str, String)>, u64)>;

/// Writes metrics, one name after the other.
struct Pen<'a>(DescriptorEncoder<'a>);

impl Pen<'_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: &impl EncodeCounterValue,
    ) -> Result<(), Error> {
        let none: Option<&Exemplar<NoLabelSet, u64>> = None;
        self.begin(name, help, MetricType::Counter)?.encode_counter(value, none)
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: &impl EncodeGaugeValue,
    ) -> Result<(), Error> {
        self.begin(name, help, MetricType::Gauge)?.encode_gauge(value)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Vec<(&'static str, String)>, u64)>,
    ) -> Result<(), Error> {
        let none: Option<&Exemplar<NoLabelSet, u64>> = None;
        let mut metric = self.begin(name, help, MetricType::Counter)?;
        rows.into_iter().try_for_each(|(labels, count)| {
            metric.encode_family(&labels)?.encode_counter(&count, none)
        })
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Vec<(&'static str, String)>, u64)>,
    ) -> Result<(), Error> {
        let mut metric = self.begin(name, help, MetricType::Gauge)?;
        rows.into_iter().try_for_each(|(labels, count)| {
            metric.encode_family(&labels)?.encode_gauge(&(count as f64))
        })
    }
}

/// Times by their bounds: encoded as the library wants it, the last bound without end.
fn histogram(
    metric: &mut MetricEncoder<'_>,
    bounds: impl IntoIterator<Item = f64>,
    counts: &[u64],
    seconds: f64,
) -> Result<(), Error> {
    let bounds = bounds.into_iter().chain([f64::INFINITY]);
    // A worker may have written anything; what is summed up must not overflow.
    let fair = |count: &u64| (*count).min(u64::MAX / 64);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().map(fair)).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut pen = Pen(encoder);
        let rows = self.sessions.iter().map(|((owner, state), count)| {
            (vec![("owner", owner.clone()), ("state", (*state).to_owned())], *count)
        });
        pen.gauges("outboard_sessions", "Sessions now", rows)?;
        pen.gauge("outboard_sessions_limit", "The most sessions at once", &self.most_sessions)?;
        let one = |label: &'static str, counts: &BTreeMap<&'static str, u64>| -> Rows {
            counts.iter().map(|(name, count)| (vec![(label, (*name).to_owned())], *count)).collect()
        };
        pen.counters(
            "outboard_session_starts",
            "Sessions that clients asked for",
            one("outcome", &self.starts),
        )?;
        pen.counters("outboard_refusals", "Connections refused", one("code", &self.refusals))?;
        let commands = self.named("class", &CLASSES, |reading| reading.commands.to_vec());
        pen.counters("outboard_commands", "Commands that workers have taken", commands)?;
        let chained = self
            .owners
            .iter()
            .map(|(owner, reading)| (vec![("owner", owner.clone())], reading.chained));
        pen.counters(
            "outboard_chained_launches",
            "Launches that workers made with others, as one",
            chained,
        )?;
        pen.counters("outboard_bytes", "Bytes between clients and workers", self.bytes())?;
        let errors = self.named("kind", &ERRORS, |reading| reading.errors.to_vec());
        pen.counters("outboard_errors", "CUDA errors that clients were told", errors)?;
        let mut waits =
            pen.begin("outboard_wait_seconds", "Waits for the device", MetricType::Histogram)?;
        for (owner, reading) in &self.owners {
            let labels = [("owner", owner.as_str())];
            let bounds = WAIT_BOUNDS.iter().map(|ns| *ns as f64 / 1e9);
            let seconds = reading.wait_ns as f64 / 1e9;
            histogram(&mut waits.encode_family(&labels)?, bounds, &reading.waits, seconds)?;
        }
        pen.gauges(
            "outboard_device_memory_bytes",
            "Device memory that sessions hold",
            self.memory(),
        )?;
        pen.gauge("outboard_warm_workers", "Workers that wait for a client", &self.warm)?;
        pen.gauge(
            "outboard_warm_workers_wanted",
            "Workers that are to wait for a client",
            &self.warm_wanted,
        )?;
        let memory = self
            .warm_memory
            .iter()
            .map(|(device, bytes)| (vec![("device", device.to_string())], *bytes));
        pen.gauges(
            "outboard_warm_device_memory_bytes",
            "Device memory that waiting workers hold",
            memory,
        )?;
        let help = "Memory of this machine that waiting workers hold";
        pen.gauge("outboard_warm_host_memory_bytes", help, &self.warm_host_memory)?;
        pen.counters(
            "outboard_workers_given",
            "Workers that clients were given",
            one("worker", &self.given),
        )?;
        pen.gauge("outboard_queue_length", "Clients that wait for their place", &self.queued)?;
        let mut queue = pen.begin(
            "outboard_queue_wait_seconds",
            "How long clients waited for their place",
            MetricType::Histogram,
        )?;
        histogram(&mut queue, QUEUE_BOUNDS, &self.queue.counts, self.queue.seconds)?;
        let about =
            [("version", env!("CARGO_PKG_VERSION").to_owned()), ("protocol", VERSION.to_string())];
        pen.begin("outboard_build", "The server", MetricType::Info)?.encode_info(&about)?;
        if let Some(read) = &self.devices {
            devices::encode(read, &mut pen)?;
        }
        self.process.encode(&mut pen)
    }
}

#[cfg(test)]
mod tests {
    use outboard_nvml::Gauges;
    use outboard_test_support::monitoring::{Shipped, check};

    use super::*;
    use outboard_control::messages::Gauge;

    /// One whose NVML knows all, and one of which nothing is known.
    fn devices() -> Read {
        let known = Gauges {
            memory_used: Some(256),
            utilisation: Some(43),
            temperature: Some(61),
            milliwatts: Some(350_500),
            ..Gauges::default()
        };
        let device = |ordinal, now| Gauge {
            ordinal,
            name: "NVIDIA H200".to_owned(),
            uuid: format!("GPU-{ordinal}"),
            memory: 1024,
            now,
            failure: None,
            nvlink: Vec::new(),
        };
        Read {
            when: std::time::Instant::now(),
            devices: vec![device(0, known), device(2, Gauges::default())],
        }
    }

    #[test]
    fn everything_is_told_in_the_format_of_openmetrics() {
        let mut reading = Reading::default();
        (reading.commands[0], reading.chained) = (7, 4);
        reading.bytes[1][2] = 9;
        reading.waits = [1, 0, 2, 0, 0, 0, u64::MAX];
        reading.wait_ns = 1_500_000_000;
        (reading.held[1], reading.peak[1]) = (1 << 30, 1 << 31);
        let snapshot = Snapshot {
            owners: [("a\"b\n".to_owned(), reading), ("idle".to_owned(), Reading::default())]
                .into(),
            sessions: [(("a\"b\n".to_owned(), "serving"), 2)].into(),
            most_sessions: 5,
            warm: 1,
            warm_wanted: 3,
            warm_memory: [(1, 1 << 29)].into(),
            warm_host_memory: 1 << 20,
            given: [("ready", 2)].into(),
            starts: [("welcomed", 3)].into(),
            refusals: [("busy", 4)].into(),
            queued: 6,
            queue: QueueTimes::default(),
            process: Process::look(),
            devices: Some(devices()),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"outboard_sessions{owner="a\"b\n",state="serving"} 2.0"#,
            "outboard_sessions_limit 5",
            r#"outboard_session_starts_total{outcome="welcomed"} 3"#,
            r#"outboard_refusals_total{code="busy"} 4"#,
            r#"outboard_commands_total{owner="a\"b\n",class="launch"} 7"#,
            r#"outboard_chained_launches_total{owner="a\"b\n"} 4"#,
            r#"outboard_bytes_total{owner="a\"b\n",direction="from_device",way="shared"} 9"#,
            r#"outboard_wait_seconds_sum{owner="a\"b\n"} 1.5"#,
            r#"outboard_wait_seconds_bucket{le="0.01",owner="a\"b\n"} 3"#,
            r#"outboard_device_memory_bytes{owner="a\"b\n",device="1"} 1073741824.0"#,
            r#"outboard_device_memory_bytes{owner="idle",device="1"} 0.0"#,
            "outboard_warm_workers 1",
            "outboard_warm_workers_wanted 3",
            r#"outboard_warm_device_memory_bytes{device="1"} 536870912.0"#,
            "outboard_warm_host_memory_bytes 1048576",
            r#"outboard_workers_given_total{worker="ready"} 2"#,
            "outboard_queue_length 6",
            r#"outboard_queue_wait_seconds_bucket{le="+Inf"} 0"#,
            "# TYPE outboard_build info",
            r#"outboard_device_info{device="0",uuid="GPU-0",name="NVIDIA H200"} 1"#,
            r#"outboard_device_memory_total_bytes{device="0"} 1024.0"#,
            r#"outboard_device_memory_used_bytes{device="0"} 256.0"#,
            r#"outboard_device_utilization_ratio{device="0"} 0.43"#,
            r#"outboard_device_temperature_celsius{device="0"} 61.0"#,
            r#"outboard_device_power_watts{device="0"} 350.5"#,
            r#"outboard_device_memory_total_bytes{device="2"} 1024.0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        // Memory that no session has held, and gauges that NVML lacks, are left out.
        let named = |name: &str, device: &str| {
            text.lines().any(|line| {
                line.starts_with(name) && line.contains(&format!("device=\"{device}\""))
            })
        };
        assert!(!named("outboard_device_memory_bytes", "0"), "{text}");
        for unit in ["memory_used_bytes", "utilization_ratio", "temperature_celsius", "power_watts"]
        {
            assert!(!named(&format!("outboard_device_{unit}"), "2"), "{unit}: {text}");
        }
        let shipped = Shipped {
            dashboard: "grafana/outboard.json",
            alerts: "prometheus/outboard.rules.yml",
            queries: 26,
        };
        check(&text, &shipped);
    }
}
