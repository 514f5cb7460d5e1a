//! What the supervisor's process uses, by the names that monitoring systems know.

use std::fmt::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::Pen;

/// One look at this process.
#[derive(Debug, Default)]
pub(super) struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    open_descriptors: u64,
    most_descriptors: Option<u64>,
    start_seconds: f64,
}

impl Process {
    /// What the system says; zero where it says nothing.
    pub(super) fn look() -> Process {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // After the name in parentheses, which may hold anything: the state is the third field of
        // all.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| {
            fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let uptime: f64 =
            uptime.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let age = (uptime - field(22) as f64 / ticks).max(0.0);
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        Process {
            cpu_seconds: (field(14) + field(15)) as f64 / ticks,
            resident_bytes: field(24).saturating_mul(rustix::param::page_size() as u64),
            virtual_bytes: field(23),
            threads: field(20),
            // Without the one that lists them.
            open_descriptors: std::fs::read_dir("/proc/self/fd")
                .map_or(0, |fds| fds.count().saturating_sub(1) as u64),
            most_descriptors: getrlimit(Resource::Nofile).current,
            start_seconds: now - age,
        }
    }

    pub(super) fn encode(&self, pen: &mut Pen<'_>) -> Result<(), Error> {
        pen.counter("process_cpu_seconds", "Processor time of the supervisor", &self.cpu_seconds)?;
        pen.gauge(
            "process_resident_memory_bytes",
            "Memory of the supervisor",
            &self.resident_bytes,
        )?;
        pen.gauge(
            "process_virtual_memory_bytes",
            "Address space of the supervisor",
            &self.virtual_bytes,
        )?;
        pen.gauge("process_threads", "Threads of the supervisor", &self.threads)?;
        pen.gauge(
            "process_open_fds",
            "Open descriptors of the supervisor",
            &self.open_descriptors,
        )?;
        if let Some(most) = self.most_descriptors {
            pen.gauge("process_max_fds", "The most descriptors that it may have open", &most)?;
        }
        pen.gauge("process_start_time_seconds", "When the supervisor started", &self.start_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let process = Process::look();
        assert!(
            process.resident_bytes > 1 << 20
                && process.open_descriptors >= 3
                && process.threads >= 1
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(
            process.start_seconds > now - 86400.0 && process.start_seconds <= now + 1.0,
            "{process:?}"
        );
    }
}
