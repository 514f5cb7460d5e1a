//! Logins: to one server, to a second one, to a pool; what they say, and how they go.

use std::process::{Output, Stdio};

use outboard_e2e::{
    Folder, PATIENCE, PlayedServer, PoolBroker, Server, command, one_line, outboard, within,
};
use outboard_test_support::skip;
use serde_json::Value;

/// A user with a configuration of their own.
struct User(Folder);

impl User {
    fn create() -> User {
        User(Folder::create())
    }

    fn file(&self) -> String {
        self.0.path("config/outboard/outboard.toml")
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = command();
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_CONFIG_HOME", self.0.path("config"))
            // Where no other test's server has a socket.
            .env("XDG_RUNTIME_DIR", self.0.path("run"))
            .stdin(Stdio::null());
        command.args(args).output().expect("outboard starts")
    }

    fn printed(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.printed(args)).expect("JSON")
    }

    /// Runs what fails with that status, and says this.
    #[track_caller]
    fn failed(&self, args: &[&str], status: i32, parts: &[&str]) {
        let output = self.run(args);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part} is not in {text}");
        }
    }
}

fn said(output: &Output) -> String {
    one_line(&[output.stdout.as_slice(), &output.stderr].concat())
}

/// A server that encrypts and wants to know its clients.
struct Strict {
    server: Server,
    state: Folder,
}

impl Strict {
    fn start() -> Strict {
        let folder = Folder::create();
        let socket = folder.path("socket");
        Strict::with(folder, &socket)
    }

    /// With this socket for its machine's users.
    fn start_at(socket: &str) -> Strict {
        Strict::with(Folder::create(), socket)
    }

    fn with(state: Folder, socket: &str) -> Strict {
        let folder = state.path("state");
        token(&folder, "gpu1", &[]);
        let flags = ["--driver", "cpu", "--tls", "on", "--require-authentication"];
        let flags = [&flags[..], &["--state", &folder, "--socket", socket]].concat();
        Strict { server: Server::start_with(&flags, &[]), state }
    }

    fn address(&self) -> &str {
        self.server.address()
    }

    fn login(&self, more: &[&str]) -> String {
        token(&self.state.path("state"), self.address(), more)
    }
}

/// The string for `outboard login` of a new token of alice's.
fn token(state: &str, address: &str, more: &[&str]) -> String {
    let create = ["token", "create", "--json", "--owner", "alice", "--state", state];
    let made = outboard(&[&create[..], &["--address", address], more].concat());
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    made["login"].as_str().expect("a text").to_owned()
}

#[test]
fn a_login_says_who_one_is_and_until_when() {
    let (user, strict) = (User::create(), Strict::start());
    let text = user.printed(&["login", &strict.login(&["--expires", "3d"])]);
    assert!(text.contains(&format!("{} knows you as alice, until 20", strict.address())), "{text}");
    assert!(text.contains("It has 1 device: "), "{text}");
    let status = user.json(&["status", "--json"]);
    let row = &status["places"][0];
    assert_eq!((&row["what"], &row["place"]), (&"server".into(), &strict.address().into()));
    assert_eq!(row["answer"]["owner"], "alice");
    let shown = user.run(&["status"]);
    assert!(said(&shown).contains("context default"), "{}", said(&shown));
    assert!(said(&shown).contains("ends in 2 days"), "{}", said(&shown));
    let never = User::create();
    let answer = never.json(&["login", "--json", &strict.login(&["--expires", "never"])]);
    assert_eq!(answer["answer"]["owner"], "alice");
    assert_eq!(answer["answer"]["expires"], Value::Null);
}

#[test]
fn a_login_that_does_not_work_is_kept_and_has_a_status_of_its_own() {
    let (user, strict) = (User::create(), Strict::start());
    let good = strict.login(&[]);
    let at = good.find("obt_").expect("a token") + 4;
    let mut wrong = good.clone();
    wrong.replace_range(at..at + 64, &"0a".repeat(32));
    user.failed(&["login", &wrong], 3, &["the login was kept", "OB0402", strict.address()]);
    assert!(std::fs::read_to_string(user.file()).expect("kept").contains(strict.address()));
    // The same server's other token is asked for.
    user.failed(&["login", &good], 1, &["another token", "--force", "OB0706"]);
    assert!(user.printed(&["login", "--force", &good]).contains("knows you as alice"));
    let away = good.replace(strict.address(), "nowhere.invalid:9470");
    user.failed(&["login", "--context", "away", &away], 3, &["the login was kept", "OB0111"]);
    user.printed(&["login", "--context", "untried", "--no-check", &away]);
}

#[test]
fn a_second_server_is_kept_beside_the_first_and_a_third_has_no_login() {
    let user = User::create();
    let (first, second, third) = (Strict::start(), Strict::start(), Strict::start());
    user.printed(&["login", &first.login(&[])]);
    let text = user.printed(&["login", &second.login(&[])]);
    assert!(text.contains(&format!("for `--server {}`", second.address())), "{text}");
    let both = format!("{},{}", first.address(), second.address());
    let listed = user.json(&["devices", "--json", "--server", &both]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!(user.json(&["devices", "--json"])["server"], first.address());

    // Whose fingerprint it is, and where it stands; nobody is suspected.
    let to_all = format!("{both},{}", third.address());
    let line = ["run", "--server", &to_all, "--", "true"];
    let place = format!("{}:", user.file());
    let parts = [
        &*format!("you have no login for {}", third.address()),
        &*format!("is that of {}", first.address()),
        "OB0404",
    ];
    user.failed(&line, 1, &parts);
    let told = said(&user.run(&line));
    assert!(!told.contains("somebody else"), "{told}");
    assert!(told.replace(' ', "").contains(&place.replace(' ', "")), "{told}");
    assert!(!third.server.log().contains("a token was shown"), "{}", third.server.log());

    let status = user.json(&["status", "--json"]);
    let places: Vec<_> = status["places"].as_array().expect("rows").iter().collect();
    assert_eq!((&places[0]["what"], &places[1]["what"]), (&"server".into(), &"login".into()));
    assert_eq!(places[1]["answer"]["owner"], "alice");

    // One goes after the other, each with its token.
    let text = user.printed(&["logout", second.address()]);
    assert!(text.contains("The token in "), "{text}");
    user.failed(&["devices", "--server", second.address()], 1, &["no login for"]);
    user.printed(&["logout"]);
    user.failed(&["logout"], 1, &["no such login"]);
    assert!(user.printed(&["status"]).contains("No server and no pool is set"));
    let left = std::fs::read_dir(user.0.path("config/outboard")).expect("the folder");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["outboard.toml"]);
}

#[test]
fn a_token_goes_to_no_other_server_in_the_clear() {
    let (user, strict) = (User::create(), Strict::start());
    user.printed(&["login", &strict.login(&[])]);
    // It knows no tokens, and lets its machine's users in.
    let other = Server::start_with(&["--driver", "cpu", "--socket", &user.0.path("s.sock")], &[]);
    let at = format!("unix:{}", user.0.path("s.sock"));
    assert_eq!(user.json(&["devices", "--json", "--server", &at])["transport"], "unix");
    assert!(!other.log().contains("token that is not known"), "{}", other.log());
}

/// The string for `outboard login` of a new token of the broker's.
fn pool_login(broker: &PoolBroker) -> String {
    let state = broker.state.path("broker");
    let create = ["token", "create", "--json", "--broker", "--state", &state, "--role", "client"];
    let made =
        outboard(&[&create[..], &["--owner", "alice", "--address", &broker.address]].concat());
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    made["login"].as_str().expect("a text").to_owned()
}

#[test]
fn a_pool_is_a_login_like_a_server() {
    let (user, broker) = (User::create(), PoolBroker::start(&[]));
    let _server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 2);
    let login = pool_login(&broker);
    assert!(login.starts_with("outboard+pool://obt_"), "{login}");
    let text = user.printed(&["login", &login]);
    assert!(text.contains("knows you as alice (client)"), "{text}");
    assert!(text.contains("It has 1 server, 2 devices."), "{text}");
    // No command needs a variable or a flag.
    assert!(user.printed(&["pool"]).contains("Played 80GB"));
    let smi = user.printed(&["smi"]);
    assert!(smi.contains("Played 80GB") && smi.contains("No leases."), "{smi}");
    let status = user.json(&["status", "--json"]);
    assert_eq!(status["places"][0]["what"], "pool");
    assert_eq!(status["places"][0]["answer"]["devices"], 2);
    user.failed(&["run", "--", "true"], 1, &["did you mean --gpus 1?", "OB0706"]);
    // In a context, too.
    user.printed(&["login", "--context", "lab", &login]);
    user.printed(&["context", "use", "lab"]);
    assert!(user.printed(&["pool"]).contains("Played 80GB"));
    user.printed(&["context", "use", "default"]);
    assert!(user.printed(&["context", "remove", "lab"]).contains("The token in "));

    // Another broker in its place.
    let text = std::fs::read_to_string(user.file()).expect("it is there");
    let fingerprint = broker.fingerprint.clone();
    let other = format!("sha256:{}", "0b".repeat(32));
    std::fs::write(user.file(), text.replace(&fingerprint, &other)).expect("it can be written");
    let told = said(&user.run(&["pool"]));
    assert!(told.contains("cannot be trusted") && told.contains("do not go on"), "{told}");
    assert!(told.contains("OB1004") && !told.contains("OtherError"), "{told}");

    user.printed(&["logout", &format!("https://{}", broker.address)]);
    user.failed(&["pool"], 1, &["no broker is named"]);
}

#[test]
fn a_machine_without_nvidia_smi_is_told_of_ours() {
    let (user, strict) = (User::create(), Strict::start());
    user.printed(&["login", &strict.login(&[])]);
    let table = user.printed(&["smi"]);
    for part in ["CUDA Version: ", "Memory-Usage", "GPU-Util", strict.address()] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let listed = user.json(&["smi", "--json"]);
    assert_eq!(listed["server"], strict.address());
    assert!(listed["devices"][0]["memory_bytes"].is_u64(), "{listed}");
    user.failed(&["run", "--", "/nowhere/nvidia-smi"], 127, &["OB0702", "outboard smi"]);
}

#[test]
fn whoever_has_configured_nothing_is_told_what_there_is_to_do() {
    let user = User::create();
    let output = user.run(&["run", "--", "true"]);
    let told = said(&output);
    if output.status.success() || !told.contains("OB0101") {
        skip!("a server listens at this machine's usual port");
    }
    let at = |part: &str| told.find(part).unwrap_or_else(|| panic!("{part} is not in {told}"));
    assert!(at("no server is configured") < at("--server HOST"));
    assert!(at("--server HOST") < at("outboard login") && at("outboard login") < at("--local-cpu"));
}

#[test]
fn a_servers_own_user_needs_no_flag() {
    let user = User::create();
    let folder = user.0.path("run/outboard");
    std::fs::create_dir_all(&folder).expect("it can be made");
    let strict = Strict::start_at(&format!("{folder}/9470.sock"));
    let listed = user.json(&["devices", "--json"]);
    assert_eq!(listed["transport"], "unix", "{listed}");
    let seen = user.printed(&["run", "--", "sh", "-c", "echo $OUTBOARD_SERVER"]);
    assert_eq!(seen.trim(), format!("unix:{folder}/9470.sock"));
    // A server that is named goes before it.
    user.failed(&["devices", "--server", strict.address()], 1, &["OB0405"]);
    user.printed(&["login", &strict.login(&[])]);
    assert_eq!(user.json(&["devices", "--json"])["server"], strict.address());
}

#[test]
fn an_empty_list_of_servers_is_none() {
    let user = User::create();
    let strict = Strict::start();
    user.printed(&["login", &strict.login(&[])]);
    for args in [&["devices"][..], &["run", "--", "true"], &["status"]] {
        let mut command = command();
        let config = user.0.path("config");
        command.env("OUTBOARD_SERVER", "").env("XDG_CONFIG_HOME", config);
        let output = command.env_remove("OUTBOARD_CONFIG").args(args).output();
        let output = output.expect("outboard starts");
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

#[test]
fn the_doctor_looks_at_a_pool_and_takes_a_lease() {
    let (user, broker) = (User::create(), PoolBroker::start(&[]));
    user.printed(&["login", &pool_login(&broker)]);
    let first = user.run(&["doctor"]);
    assert!(first.status.success(), "{}", said(&first));
    for part in ["knows you as alice (client)", "the pool has no servers", "doctor --gpus 1"] {
        assert!(said(&first).contains(part), "{part}: {}", said(&first));
    }
    let token = broker.state.write("server-token", &broker.token("server", "gpu1"));
    broker.state.allow("server-token", 0o600);
    let (url, state) = (format!("https://{}", broker.address), broker.state.path("gpu1"));
    let flags = [
        ["--driver", "cpu"],
        ["--tls", "on"],
        ["--socket", "none"],
        ["--state", &state],
        ["--pool", &url],
        ["--pool-fingerprint", &broker.fingerprint],
        ["--pool-token-file", &token],
        ["--pool-name", "gpu1"],
    ];
    let _server = Server::start_with(&flags.concat(), &[]);
    let mut last = String::new();
    let is_there = within(PATIENCE, || {
        last = said(&user.run(&["doctor"]));
        last.contains("gpu1 at ")
    });
    assert!(is_there, "{last}");
    let output = user.run(&["doctor", "--gpus", "1", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks: Vec<_> = told["findings"].as_array().expect("a list").iter().collect();
    assert!(checks.iter().any(|one| one["check"] == "token"), "{told}");
    let leased = told["leased"]["findings"].as_array().expect("a lease was taken");
    assert!(leased.iter().any(|one| one["check"] == "server" && one["level"] == "ok"), "{told}");
    assert!(output.status.success(), "{told}");
    // It is given back.
    let free = within(PATIENCE, || user.printed(&["smi"]).contains("No leases."));
    assert!(free, "{}", user.printed(&["pool", "leases"]));
    // Without a broker, it says so.
    drop(broker);
    user.failed(&["doctor", "--gpus", "1"], 1, &["OB1001"]);
}

#[test]
fn times_are_written_alike_everywhere() {
    let user = User::create();
    for line in [
        &[
            "doctor",
            "serve",
            "--json",
            "--driver",
            "cpu",
            "--listen",
            "127.0.0.1:0",
            "--drain",
            "30s",
        ][..],
        &["doctor", "--json", "serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--grace=1m"],
    ] {
        let output = user.run(line);
        let told: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(told.is_ok(), "{line:?}: {}", said(&output));
    }
    user.failed(&["doctor", "serve", "--grace", "2d"], 2, &["between 0 and 86400"]);
    user.failed(&["doctor", "serve", "--drain", "soon"], 2, &["write seconds, or 90s"]);
    user.failed(&["trace", "1234", "-s", "10s"], 1, &["OB0901"]);
}
