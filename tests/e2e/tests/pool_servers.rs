//! A pool as a whole: a real broker, servers on the software device that beat to it, and programs.

use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outboard_broker_client::{Blocking, Broker, Method};
use outboard_e2e::{
    Driver, Folder, Lines, PATIENCE, PoolBroker, Server, command, programs, within,
};
use outboard_pool::api::{Ask, LeaseView, PoolView, Standing};
use outboard_pool::words::{Condition, LeaseNumber, Request, Share, Use};
use tokio::runtime::Builder;

/// How long a session may go on after its lease was ended, where the broker is reachable.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Pool {
    pub(crate) broker: PoolBroker,
    pub(crate) servers: Vec<Server>,
    folder: Folder,
    pub(crate) client: String,
    pub(crate) admin: Blocking,
}

pub(crate) fn view(broker: &Blocking) -> PoolView {
    broker.ask(Method::GET, "/v1/pool").expect("it may be seen")
}

impl Pool {
    /// So many servers, each with the device under test: `gpu0` has the label `rack=r0`.
    pub(crate) fn start(count: usize) -> Pool {
        Pool::start_on(count, &[])
    }

    /// The same with these variables for the servers.
    fn start_on(count: usize, env: &[(&str, &str)]) -> Pool {
        let broker = PoolBroker::start(&[]);
        let folder = Folder::create();
        let token = folder.write("token", &broker.token("server", "servers"));
        let url = format!("https://{}", broker.address);
        let start = |at: usize| {
            let (name, state) = (format!("gpu{at}"), folder.path(&format!("state{at}")));
            let rack = format!("rack=r{at}");
            let flags = [
                ["--driver", Driver::chosen().name()],
                ["--tls", "on"],
                ["--socket", "none"],
                ["--state", &state],
                ["--pool", &url],
                ["--pool-fingerprint", &broker.fingerprint],
                ["--pool-token-file", &token],
                ["--pool-name", &name],
                ["--label", &rack],
            ];
            Server::start_with(&flags.concat(), env)
        };
        let servers = (0..count).map(start).collect();
        let client = broker.token("client", "ada");
        let admin = broker.for_token(&broker.token("admin", "root"));
        let are_there = || {
            let all = view(&admin).servers;
            all.len() == count && all.iter().all(|server| server.condition == Condition::Ready)
        };
        assert!(within(PATIENCE, are_there), "the servers have not registered");
        Pool { broker, servers, folder, client, admin }
    }

    /// Starts a shell in which `$programs` is the folder of test programs.
    pub(crate) fn shell(&self, flags: &[&str], script: &str) -> Child {
        self.shell_of(&self.client, flags, script)
    }

    /// The same for somebody with that token.
    fn shell_of(&self, token: &str, flags: &[&str], script: &str) -> Child {
        command()
            .arg("run")
            .args(flags)
            .args(["--", "sh", "-c", script])
            .envs(self.broker.variables(token))
            .env("programs", programs())
            .env("OUTBOARD_LOG", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("outboard starts")
    }

    /// What comes of a program that runs on devices of the pool.
    pub(crate) fn run(&self, flags: &[&str]) -> Output {
        command()
            .arg("run")
            .args(flags)
            .arg("--")
            .arg(programs().join("attributes"))
            .envs(self.broker.variables(&self.client))
            .output()
            .expect("outboard starts")
    }

    pub(crate) fn is_free(&self) -> bool {
        within(PATIENCE, || view(&self.admin).leases.is_empty())
    }
}

/// Runs programs one after the other until one fails, and says when.
const UNTIL_FAILURE: &str =
    "echo ready; while \"$programs/attributes\" >/dev/null 2>&1; do :; done; echo failed; cat";

/// Runs programs until its standard input ends, and says whether one failed.
const ONE_AFTER_THE_OTHER: &str = "\"$programs/attributes\" || exit 1; echo ready; read line; \
    \"$programs/attributes\" || exit 1; echo fine";

#[test]
fn programs_run_on_what_they_were_granted() {
    let pool = Pool::start(2);
    for flags in [
        &["--gpus", "1"][..],
        &["--gpus", "2", "--spread"],
        &["--gpus", "1", "--memory", "1G", "--share", "50"],
    ] {
        let child = pool.shell(flags, "\"$programs/attributes\"");
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("right"), "{flags:?}: {said}");
    }
    assert!(pool.is_free());
    // Without a lease nobody comes in.
    let server = &pool.servers[0];
    let refused = command().args(["devices", "--server", server.address()]).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn an_ended_lease_ends_sessions_at_once() {
    let pool = Pool::start(1);
    let mut child = pool.shell(&["--gpus", "1"], UNTIL_FAILURE);
    let lines = Lines::of(child.stdout.take());
    lines.find("ready");
    assert!(within(PATIENCE, || view(&pool.admin).leases[0].sessions > 0));
    let begin = Instant::now();
    pool.admin.bytes(Method::DELETE, "/v1/leases/1").unwrap();
    lines.find("failed");
    let took = begin.elapsed();
    assert!(took < REVOKED_WITHIN, "it took {took:?}");
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(pool.is_free());
}

/// The names of servers that are ready.
fn ready(pool: &Pool) -> Vec<String> {
    let all = view(&pool.admin).servers.into_iter();
    let ready = all.filter(|server| server.condition == Condition::Ready);
    ready.map(|server| server.name.as_str().to_owned()).collect()
}

#[test]
fn a_servers_name_belongs_to_the_key_in_its_state() {
    let mut pool = Pool::start(1);
    let key = |pool: &Pool| pool.folder.path("state0/pool.key");
    // A new certificate, and the same volume.
    pool.servers[0].kill();
    for file in ["server.crt", "server.key"] {
        std::fs::remove_file(pool.folder.path(&format!("state0/{file}"))).expect("it has one");
    }
    pool.servers[0].start_again();
    let runs = || {
        let child = pool.shell(&["--gpus", "1"], "\"$programs/attributes\"");
        child.wait_with_output().unwrap().status.success()
    };
    assert!(within(PATIENCE, runs), "clients have its new fingerprint");
    // Set up anew, it is another one until an admin forgets the former one.
    pool.servers[0].kill();
    std::fs::remove_file(key(&pool)).expect("it has one");
    pool.servers[0].start_again();
    pool.servers[0].expect_logged("outboard pool forget gpu0");
    let client = pool.broker.command(&pool.client, &["pool", "forget", "gpu0"]);
    assert!(!client.status.success(), "only an admin may: {client:?}");
    let root = pool.broker.token("admin", "root2");
    let forgotten = pool.broker.command(&root, &["pool", "forget", "gpu0"]);
    let said = String::from_utf8_lossy(&forgotten.stdout).into_owned();
    assert!(forgotten.status.success() && said.contains("its name is free"), "{forgotten:?}");
    assert!(within(PATIENCE, || ready(&pool) == ["gpu0"]), "{}", pool.servers[0].log());
}

/// Asks for a hundredth of a device and ends it, again and again, over one connection.
async fn ask_and_end(broker: Broker, owner: &str, is_over: &AtomicBool, count: &AtomicUsize) {
    let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
    let usage = Use::Shared(Share::try_from(1).unwrap());
    let request =
        Request { memory_bytes: 1 << 20, usage, wait_seconds: 0, ..Request::new(owner, group, 1) };
    let ask = Ask::new(request, "ab".repeat(32).parse().unwrap());
    let mut connection = broker.open().await.unwrap();
    while !is_over.load(Ordering::Relaxed) {
        match connection.ask(Method::POST, "/v1/requests", Some(&ask)).await {
            Ok(Standing::Granted(grant)) => {
                let path = format!("/v1/leases/{}", grant.number);
                let ended = connection.ask(Method::DELETE, &path, None::<&()>).await;
                let _: serde_json::Value = ended.expect("it is its own");
                count.fetch_add(1, Ordering::Relaxed);
            }
            // It has had what it may have, or nothing is free for a moment.
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Runs a program of that owner, and has it wait until its token is revoked beside what goes on
/// then: how long the session goes on.
fn session_after_its_token(pool: &Pool, owner: &str, beside: impl FnOnce()) -> Duration {
    let token = pool.broker.token("client", owner);
    let flags = ["--gpus", "1", "--memory", "256M", "--share", "50"];
    let mut child = pool.shell_of(&token, &flags, "\"$programs/endless\" 4; echo failed; cat");
    let lines = Lines::of(child.stdout.take());
    lines.find("running");
    let is_used = |lease: &LeaseView| lease.owner.as_str() == owner && lease.sessions > 0;
    assert!(within(PATIENCE, || view(&pool.admin).leases.iter().any(is_used)));
    beside();
    let state = pool.broker.state.path("broker");
    let revoke = ["token", "--broker", "--state", &state, "revoke", owner];
    assert!(outboard_e2e::outboard(&revoke).status.success());
    let begin = Instant::now();
    lines.find("failed");
    let took = begin.elapsed();
    drop(child.stdin.take());
    let _ = child.wait();
    took
}

#[test]
fn a_revoked_token_has_no_session_whatever_others_ask_for_and_end() {
    let pool = Pool::start_on(1, &[("OUTBOARD_CPU_DEVICES", "16")]);
    let alone = session_after_its_token(&pool, "eve", || {});
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..8 {
            let owner = format!("crowd{number}");
            let settings = pool.broker.settings(&pool.broker.token("client", &owner));
            let broker = Broker::new(settings.access().unwrap());
            let (is_over, count) = (&is_over, &count);
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(ask_and_end(broker, &owner, is_over, count));
            });
        }
        let took = session_after_its_token(&pool, "bob", || {
            // More than a server reads of one answer, where the machine is as fast.
            within(Duration::from_secs(40), || count.load(Ordering::Relaxed) > 6500);
        });
        is_over.store(true, Ordering::Relaxed);
        eprintln!("{count:?} leases were asked for and ended: {took:?}, and {alone:?} before");
        // The askers take turns with it on the machine's processors.
        let most = alone + REVOKED_WITHIN;
        assert!(took < most, "it took {took:?}, after {count:?} leases, and {alone:?} before");
    });
}

#[test]
fn a_broker_that_is_killed_disturbs_no_program() {
    let mut pool = Pool::start(1);
    let mut child = pool.shell(&["--gpus", "1"], ONE_AFTER_THE_OTHER);
    let lines = Lines::of(child.stdout.take());
    lines.find("ready");
    pool.broker.kill();
    drop(child.stdin.take());
    lines.find("fine");
    pool.broker.restart();
    assert!(child.wait().unwrap().success());
    assert!(pool.is_free());
    // The next one has another number.
    let output = pool.shell(&["--gpus", "1"], "\"$programs/attributes\"").wait_with_output();
    assert!(output.unwrap().status.success());
    let why = pool.admin.bytes(Method::GET, &format!("/v1/leases/{}/why", LeaseNumber(2)));
    assert!(why.is_ok());
}
