//! What the run took place on, without anything that names one machine.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Processor, memory, kernel, NVIDIA's driver.
pub(crate) fn describe() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    put("processor", field(&read("/proc/cpuinfo"), "model name"));
    put("processors", std::thread::available_parallelism().ok().map(|count| count.to_string()));
    put("memory", field(&read("/proc/meminfo"), "MemTotal").and_then(|text| gibibytes(&text)));
    put(
        "Linux",
        read("/proc/sys/kernel/osrelease").split('-').next().map(|text| text.trim().to_owned()),
    );
    let asked = Command::new("nvidia-smi")
        .args(["--query-gpu=driver_version", "--format=csv,noheader"])
        .output();
    let driver = asked.ok().filter(|output| output.status.success());
    put(
        "NVIDIA's driver",
        driver.and_then(|output| first_line(&String::from_utf8_lossy(&output.stdout))),
    );
    facts
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// `16384256 kB` as `16 GiB`.
fn gibibytes(text: &str) -> Option<String> {
    let kibibytes: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(format!("{:.0} GiB", kibibytes / f64::from(1 << 20)))
}

fn first_line(text: &str) -> Option<String> {
    text.lines().next().map(|line| line.trim().to_owned())
}

/// Today, as `2026-11-21`, in UTC.
pub(crate) fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags"), None);
        assert_eq!(gibibytes("16384256 kB").as_deref(), Some("16 GiB"));
    }

    #[test]
    fn the_day_is_written_as_usual() {
        let today = today();
        assert!(
            today.len() == 10 && today.starts_with("20") && today.as_bytes()[4] == b'-',
            "{today}"
        );
    }
}
