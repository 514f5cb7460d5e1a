//! What is shipped besides programs is as it should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use outboard_test_support::skip;

use crate::debian;
use crate::util::{root, target_dir};

const SERVER: &str = "outboard.service";
const BROKER: &str = "outboard-broker.service";

/// A unit's settings, each with its values.
type Settings = BTreeMap<String, Vec<String>>;

/// A unit, and its settings.
fn unit(name: &str) -> (String, Settings) {
    let path = root().join("deploy/systemd").join(name);
    let text = fs::read_to_string(path).expect("the unit can be read");
    let mut settings = Settings::new();
    for line in text.lines().filter(|line| !line.starts_with(['#', '['])) {
        if let Some((key, value)) = line.split_once('=') {
            settings.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
    (text, settings)
}

/// Checks a setting's value.
fn is(settings: &Settings, key: &str, value: &str) {
    let found = settings.get(key).map(|values| values.join(" "));
    assert_eq!(found.as_deref(), Some(value), "{key}");
}

/// Checks what both services give up.
fn is_hardened(settings: &Settings) {
    for key in [
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectHome",
        "ProtectKernelModules",
        "RestrictSUIDSGID",
        "RestrictNamespaces",
    ] {
        is(settings, key, "yes");
    }
    is(settings, "ProtectSystem", "strict");
    is(settings, "CapabilityBoundingSet", "");
    is(settings, "DevicePolicy", "closed");
}

#[test]
fn the_unit_is_hardened_and_lets_sessions_finish() {
    let (_, settings) = unit(SERVER);
    is_hardened(&settings);
    // The unit may ask of the server only what it does.
    let server = source(&root().join("crates/outboard-supervisor/src"));
    let asks = |key: &str, word: &str| {
        settings.get(key).is_some_and(|values| values.join(" ").contains(word))
    };
    assert!(
        !asks("Type", "notify") || server.contains("sd_notify"),
        "the server does not tell systemd that it is up"
    );
    assert!(
        !settings.contains_key("WatchdogSec") || server.contains("watchdog"),
        "the server tells no watchdog"
    );
    // A signal would be sent and nothing heard of what becomes of it.
    is(&settings, "ExecReload", "/usr/local/bin/outboard upgrade --process $MAINPID");
    let question =
        fs::read_to_string(root().join("crates/outboard-supervisor/src/admin/upgrade.rs"))
            .expect("it is there");
    let limits: u64 = ["DECISION", "ARRIVAL", "LEAVING", "RESTART", "LATE"]
        .map(|name| limit(&question, name))
        .iter()
        .sum();
    assert!(time(&settings, "TimeoutStartSec") > limits, "a reload is not cut off");
    let seconds = time(&settings, "TimeoutStopSec");
    let drain = fs::read_to_string(root().join("crates/outboard-cli/src/serve/standing.rs"))
        .expect("the flag is there");
    let drain = drain
        .split("default_value_t = ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("a default");
    assert!(seconds > drain.parse().expect("seconds"), "a server that drains is not killed");
    // What the sandbox of workers calls has to be let through.
    let calls = &settings["SystemCallFilter"][0];
    for call in [
        "@system-service",
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
        "seccomp",
    ] {
        assert!(calls.split(' ').any(|word| word == call), "{call} is not let through");
    }
}

/// A time of the unit, in seconds.
fn time(settings: &BTreeMap<String, Vec<String>>, key: &str) -> u64 {
    settings[key][0].trim_end_matches('s').parse().expect("seconds")
}

/// A constant of the source that is a number of seconds.
fn limit(source: &str, name: &str) -> u64 {
    let value = source.split(&format!("const {name}: Duration = Duration::from_secs(")).nth(1);
    value
        .and_then(|rest| rest.split(')').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{name} is a number of seconds"))
}

/// The source in a folder, as one text.
fn source(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("the source is there").flatten() {
        let path = entry.path();
        text += &if path.is_dir() {
            source(&path)
        } else {
            fs::read_to_string(&path).unwrap_or_default()
        };
    }
    text
}

#[test]
fn the_brokers_unit_is_hardened_and_asks_what_it_does() {
    let (_, settings) = unit(BROKER);
    is_hardened(&settings);
    for key in ["MemoryDenyWriteExecute", "PrivateDevices", "ProtectControlGroups"] {
        is(&settings, key, "yes");
    }
    is(&settings, "Type", "notify");
    let broker = source(&root().join("crates/outboard-broker/src"));
    assert!(broker.contains("NotifyState::Ready") && broker.contains("NotifyState::Watchdog"));
    // It is told its folder, which systemd makes for it, by a variable that it knows.
    let command = fs::read_to_string(root().join("crates/outboard-cli/src/broker.rs"));
    let command = command.expect("the command is there");
    let folder = &settings["StateDirectory"][0];
    let told = settings["Environment"].join(" ");
    assert!(told.contains(&format!("OUTBOARD_BROKER_STATE=/var/lib/{folder}")), "{told}");
    assert!(command.contains("env = \"OUTBOARD_BROKER_STATE\""));
}

/// Where systemd is installed it judges the units itself.
#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        skip!("systemd-analyze is not installed: only the tests above have looked at the units");
    }
    let folder = target_dir().join("unit");
    fs::create_dir_all(&folder).expect("a folder can be made");
    // The least exposure, in tenths: the broker has less to do.
    for (name, threshold) in [(SERVER, "25"), (BROKER, "20")] {
        let file = folder.join(name);
        // Neither the user nor the program are here.
        let text = unit(name)
            .0
            .replace("/usr/local/bin/outboard", "/bin/true")
            .replace("User=outboard", "User=root");
        fs::write(&file, text.replace("Group=outboard", "Group=root")).expect("it is written");
        let verify = Command::new("systemd-analyze").arg("verify").arg(&file).output();
        let verify = verify.expect("it starts");
        let said = String::from_utf8_lossy(&verify.stderr).into_owned();
        assert!(verify.status.success() && !said.contains(&format!("{name}:")), "{said}");
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--no-pager"]);
        let security = security.arg(format!("--threshold={threshold}")).arg(&file).output();
        let security = security.expect("it starts");
        let said = String::from_utf8_lossy(&security.stdout).into_owned()
            + &String::from_utf8_lossy(&security.stderr);
        // Releases before 250 cannot judge a file.
        assert!(security.status.success() || said.contains("unrecognized option"), "{said}");
    }
}

/// Prometheus judges the alerts itself, by its tool out of Debian's package or one that is
/// installed.
#[test]
fn prometheus_accepts_the_alerts() {
    let taken = debian::program("promtool");
    let promtool = if taken.exists() { taken } else { "promtool".into() };
    if Command::new(&promtool).arg("--version").output().is_err() {
        skip!("promtool is not installed: only names of metrics were compared");
    }
    for rules in ["outboard.rules.yml", "outboard-pool.rules.yml"] {
        let file = root().join("deploy/prometheus").join(rules);
        let check = Command::new(&promtool).args(["check", "rules"]).arg(file).output();
        let check = check.expect("it starts");
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(check.status.success(), "{said}");
    }
}
