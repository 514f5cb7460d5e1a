//! The way to a server: what it costs, and what to expect of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use outboard_bench::link::{self, Figures, Times};
use outboard_client::link::NOT_USED;
use outboard_client::target::{Target, VARIABLE};
use outboard_wire::Code;

use super::child;
use super::finding::Finding;
use crate::environment;

/// How long measuring may take; the server's worker starts a driver before it begins.
const LIMIT: Duration = Duration::from_secs(90);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Above this, programs that wait often are slow.
const FAR: f64 = 2e-3;
/// Below this many bytes a second, copies are what programs wait for.
const SLOW: f64 = 100e6;

/// How long the network alone takes to set up a connection: one round trip.
pub(super) fn connection(host: &str, port: u16) -> Option<f64> {
    let address = (host, port).to_socket_addrs().ok()?.next()?;
    let mut taken: Vec<f64> = (0..5)
        .filter_map(|_| {
            let started = Instant::now();
            TcpStream::connect_timeout(&address, CONNECT).ok()?;
            Some(started.elapsed().as_secs_f64())
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken.get(taken.len() / 2).copied()
}

/// The child, which measures: prints the figures, or fails with a sentence.
pub(super) fn measured() -> String {
    match link::measure().map(|figures| serde_json::to_string(&figures)) {
        Ok(Ok(text)) => text + "\n",
        Ok(Err(error)) => stop(&error.to_string()),
        Err(problem) => stop(&problem),
    }
}

fn stop(problem: &str) -> ! {
    eprintln!("{problem}");
    std::process::exit(1)
}

/// What a program is told beside the list of its servers.
pub(super) type Variables = BTreeMap<&'static str, OsString>;

/// Opens a session as a program does and measures in it.
pub(super) fn check(
    server: &Target,
    libraries: &Path,
    known: &Variables,
    network: Option<f64>,
    one_of_several: bool,
) -> Vec<Finding> {
    let profile = tempfile::NamedTempFile::new().ok();
    let mut trial = child::this_program("doctor-trial");
    trial.arg("link").envs(environment::variables(|name| std::env::var_os(name), libraries, None));
    trial
        .envs(known)
        .env(VARIABLE, server.to_string())
        .envs(profile.iter().map(|file| ("OUTBOARD_PROFILE", file.path())))
        .env("OUTBOARD_LOG", "1");
    let ended = child::run(&mut trial, LIMIT);
    // It is empty unless a session was opened.
    let left = profile.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let found = format!("the process that measures cannot be started: {error}");
            return vec![Finding::fail(
                "session",
                Code::ClientResources,
                found,
                "check `ulimit -u`",
            )];
        }
    };
    if let Some(problem) = ended.problem(LIMIT) {
        // The library says why there is no session, and its code.
        let told = ended
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("outboard: "))
            .unwrap_or(&problem);
        let code = Code::at_end_of(told).unwrap_or(Code::WorkerFailed);
        let sentence = told.strip_suffix(&format!(" [{code}]")).unwrap_or(told);
        let mend = "`outboard doctor serve` on the server looks at its driver; its log says more";
        return vec![Finding::fail(
            "session",
            code,
            format!("a session cannot be used: {sentence}"),
            mend,
        )];
    }
    let Ok(figures) = serde_json::from_str::<Figures>(&ended.stdout) else {
        let found = format!("measuring came to nothing: {}", ended.stdout.trim());
        return vec![Finding::fail(
            "session",
            Code::NotMeasured,
            found,
            "report this with both releases",
        )];
    };
    let profile: serde_json::Value = serde_json::from_str(&left).unwrap_or_default();
    let transport = profile["transport"].as_str().unwrap_or("tcp");
    let opened =
        Finding::ok("session", format!("opened over {transport} in {}", time(figures.start)));
    let mut findings = vec![match not_used(&ended.stderr) {
        Some(reasons) => opened.expect(reasons),
        None => opened,
    }];
    if one_of_several {
        findings.push(window(&profile));
    }
    findings.push(latency(&figures, network));
    findings.push(bandwidth(&figures));
    findings
}

/// What the session might use and does not, and why, as the library says it.
fn not_used(said: &str) -> Option<String> {
    let told = said.lines().filter_map(|line| line.strip_prefix("outboard: "));
    let reasons: Vec<_> =
        told.filter_map(|told| Some(&told[told.find(&format!(" {NOT_USED} "))? + 1..])).collect();
    (!reasons.is_empty()).then(|| format!("it {}", reasons.join("\nit ")))
}

/// Whether the server can be one of several.
fn window(profile: &serde_json::Value) -> Finding {
    const CHECK: &str = "window";
    match profile["window"].as_str() {
        Some(start) => Finding::ok(
            CHECK,
            format!("its devices' memory has addresses of its own, here from {start} on"),
        ),
        None => {
            let found = "it cannot be one of several: it does not say at which addresses its devices' memory will be";
            Finding::fail(
                CHECK,
                Code::NoWindow,
                found,
                "use its devices alone, or leave it out of the list",
            )
        }
    }
}

fn latency(figures: &Figures, network: Option<f64>) -> Finding {
    let Times { calls, median, p99, .. } = figures.read;
    let network = network
        .map_or_else(String::new, |network| format!("; the network alone: {}", time(network)));
    let found = format!(
        "a call that waits takes {} (median of {calls}; 99 of 100 at most {}); a launch and the wait for it {}{network}",
        time(median),
        time(p99),
        time(figures.launch.median)
    );
    let expect = format!(
        "a program that waits for the device 1000 times a second spends {:.0} % of its time on the way; launches and copies to the device do not wait",
        (median * 1000.0 * 100.0).min(100.0)
    );
    if median > FAR {
        let mend = format!(
            "{expect}\nput the server nearer, or have the program wait less often: `outboard run --stats` shows where it does"
        );
        Finding::warn("latency", found, mend)
    } else if p99 > 20.0 * median && p99 > FAR {
        Finding::warn(
            "latency",
            found,
            format!(
                "{expect}\nthe link or one of the machines is busy at times: measure again when it is not"
            ),
        )
    } else {
        Finding::ok("latency", found).expect(expect)
    }
}

fn bandwidth(figures: &Figures) -> Finding {
    let (to, from) = (figures.to_device.rate, figures.from_device.rate);
    let found = format!(
        "{} to the device, {} from it (copies of {})",
        rate(to),
        rate(from),
        super::machine::size(figures.to_device.bytes as u64)
    );
    let expect =
        format!("1 GB takes {} to the device and {} back", time(1e9 / to), time(1e9 / from));
    if to.min(from) < SLOW {
        let mend = format!(
            "{expect}\nkeep data on the device between steps; check the network's speed with iperf3, and that nothing shapes it"
        );
        Finding::warn("bandwidth", found, mend)
    } else {
        Finding::ok("bandwidth", found).expect(expect)
    }
}

/// Seconds for people.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn rate(bytes: f64) -> String {
    if bytes < 1e9 {
        format!("{:.0} MB/s", bytes / 1e6)
    } else {
        format!("{:.1} GB/s", bytes / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use outboard_bench::link::Rate;

    fn figures(median: f64, p99: f64, bytes: f64) -> Figures {
        let times = Times { calls: 100, shortest: median, median, p99 };
        let rate = Rate { bytes: 1 << 20, rate: bytes };
        Figures { start: 0.1, read: times, launch: times, to_device: rate, from_device: rate }
    }

    #[test]
    fn why_something_is_not_used_is_passed_on() {
        let said = "outboard: hello\n\
                    outboard: the session with vsock:host does not use ivshmem: no part is free\n\
                    the session does not use words of others\n";
        assert_eq!(not_used(said).unwrap(), "it does not use ivshmem: no part is free");
        assert_eq!(not_used("outboard: hello\n"), None);
    }

    #[test]
    fn what_to_expect_follows_from_the_figures() {
        let near = figures(50e-6, 80e-6, 5e9);
        let finding = latency(&near, Some(30e-6));
        assert!(
            finding.level == Level::Ok && finding.found.contains("the network alone: 30 µs"),
            "{finding:?}"
        );
        assert!(finding.mend.is_some_and(|mend| mend.contains("spends 5 %")));
        assert!(bandwidth(&near).mend.is_some_and(|mend| mend.contains("1 GB takes 200.0 ms")));
        let far = figures(20e-3, 21e-3, 20e6);
        assert_eq!((latency(&far, None).level, bandwidth(&far).level), (Level::Warn, Level::Warn));
        assert_eq!(latency(&figures(50e-6, 30e-3, 5e9), None).level, Level::Warn, "a busy link");
    }
}
