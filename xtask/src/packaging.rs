//! What is shipped besides programs is as it should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use outboard_test_support::skip;

use crate::util::{root, target_dir};

const UNIT: &str = "deploy/systemd/outboard.service";

/// The settings of the unit, each with its values.
fn unit() -> (String, BTreeMap<String, Vec<String>>) {
    let text = fs::read_to_string(root().join(UNIT)).expect("the unit can be read");
    let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with(['#', '['])) {
        if let Some((key, value)) = line.split_once('=') {
            settings.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
    (text, settings)
}

#[test]
fn the_unit_is_hardened_and_lets_sessions_finish() {
    let (_, settings) = unit();
    let is = |key: &str, value: &str| {
        let found = settings.get(key).map(|values| values.join(" "));
        assert_eq!(found.as_deref(), Some(value), "{key}");
    };
    for key in [
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectHome",
        "ProtectKernelModules",
        "RestrictSUIDSGID",
        "RestrictNamespaces",
    ] {
        is(key, "yes");
    }
    is("ProtectSystem", "strict");
    is("CapabilityBoundingSet", "");
    is("DevicePolicy", "closed");
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
    is("ExecReload", "/usr/local/bin/outboard upgrade --process $MAINPID");
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

/// Where systemd is installed it judges the unit itself.
#[test]
fn systemd_accepts_the_unit() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        skip!("systemd-analyze is not installed: only the test above has looked at the unit");
    }
    let folder = target_dir().join("unit");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join("outboard.service");
    // Neither the user nor the program are here.
    let text = unit()
        .0
        .replace("/usr/local/bin/outboard", "/bin/true")
        .replace("User=outboard", "User=root");
    fs::write(&file, text.replace("Group=outboard", "Group=root")).expect("it can be written");
    let verify =
        Command::new("systemd-analyze").arg("verify").arg(&file).output().expect("it starts");
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("outboard.service:"), "{said}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--no-pager", "--threshold=25"]).arg(&file);
    let security = security.output().expect("it starts");
    let said = String::from_utf8_lossy(&security.stdout).into_owned()
        + &String::from_utf8_lossy(&security.stderr);
    // Releases before 250 cannot judge a file.
    assert!(security.status.success() || said.contains("unrecognized option"), "{said}");
}
