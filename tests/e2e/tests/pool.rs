//! A pool with a real broker: `outboard broker`, `outboard pool`, `outboard run --gpus`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use outboard_broker_client::{AskError, Blocking, Method, Settings};
use outboard_e2e::{
    Authority, Folder, Lines, PATIENCE, PlayedServer, PoolBroker, command, outboard, within,
};
use outboard_pool::api::{Ask, Grant, Me, PoolView, Role, Standing, Why};
use outboard_pool::words::{Condition, LeaseNumber, MayShare, Request, Use};
use rustix::process::{Pid, Signal, kill_process};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn ask(owner: &str, devices: u32, wait_seconds: u32) -> Ask {
    let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
    let request = Request {
        memory_bytes: 1 << 30,
        may_share: MayShare::SameKey,
        wait_seconds,
        ..Request::new(owner, group, devices)
    };
    Ask::new(request, "ab".repeat(32).parse().unwrap())
}

fn request(broker: &Blocking, ask: &Ask) -> Result<Standing, AskError> {
    broker.tell(Method::POST, "/v1/requests", ask)
}

fn granted(standing: Standing) -> Grant {
    match standing {
        Standing::Granted(grant) => grant,
        waiting => panic!("{waiting:?}"),
    }
}

fn status<T: std::fmt::Debug>(answer: Result<T, AskError>) -> u16 {
    match answer {
        Err(AskError::Refused { status, .. }) => status,
        other => panic!("{other:?}"),
    }
}

fn view(broker: &Blocking) -> PoolView {
    broker.ask(Method::GET, "/v1/pool").expect("it may be seen")
}

/// Whether nobody has anything, soon.
fn is_free(broker: &Blocking) -> bool {
    within(PATIENCE, || view(broker).leases.is_empty())
}

/// A pool of one server with so many devices, a client's token, and an admin.
fn pool(devices: usize) -> (PoolBroker, PlayedServer, String, Blocking) {
    let broker = PoolBroker::start(&[]);
    let server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", devices);
    let client = broker.token("client", "ada");
    let admin = broker.for_token(&broker.token("admin", "root"));
    (broker, server, client, admin)
}

/// A program that says where its lease is and ends once its standard input does.
const SCRIPT: &str = "echo lease $OUTBOARD_LEASE; echo server $OUTBOARD_SERVER; \
    echo settings $OUTBOARD_SERVERS; echo key $OUTBOARD_LEASE_KEY; echo ready; cat; exit 7";

struct Run {
    child: std::process::Child,
    lines: Lines,
}

impl Run {
    fn start(broker: &PoolBroker, token: &str, flags: &[&str]) -> Run {
        let mut child = command()
            .args(["run", "--no-check"])
            .args(flags)
            .args(["--", "sh", "-c", SCRIPT])
            .envs(broker.variables(token))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("outboard starts");
        let lines = Lines::of(child.stdout.take());
        Run { child, lines }
    }

    fn find(&self, what: &str) -> String {
        let line = self.lines.find(&format!("{what} "));
        line.split_once(' ').expect("there is something").1.to_owned()
    }
}

#[test]
fn a_program_has_its_lease_until_it_ends() {
    let (broker, server, client, admin) = pool(2);
    let mut run = Run::start(&broker, &client, &["--gpus", "1", "--memory", "20G"]);
    let lease = run.find("lease");
    assert_eq!(run.find("server"), "gpu1:9470");
    let settings: serde_json::Value = serde_json::from_str(&run.find("settings")).unwrap();
    let key = run.find("key");
    let own = &settings["gpu1:9470"];
    assert_eq!(own["lease"], lease.as_str());
    assert_eq!((&own["lease-key"], &own["pool-name"]), (&key.as_str().into(), &"gpu1".into()));
    assert_eq!(own["tls-fingerprint"], format!("sha256:{}", "0a".repeat(32)));
    for path in [&lease, &key] {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400, "{path}");
    }
    assert!(std::fs::read_to_string(&key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let token = std::fs::read_to_string(&lease).unwrap();
    let said = server.use_lease(&token).expect("the server believes it");
    assert_eq!((said.number, said.owner.as_str()), (LeaseNumber(1), "ada"));
    assert_eq!((said.devices.len(), said.devices[0].usage), (1, Use::Exclusive));

    // It is good for a minute, and for longer while it is used.
    let seen = view(&admin);
    assert_eq!((seen.leases.len(), seen.leases[0].number), (1, LeaseNumber(1)));
    assert!(within(PATIENCE, || view(&admin).leases[0].sessions == 1));
    drop(run.child.stdin.take());
    assert_eq!(run.child.wait().unwrap().code(), Some(7), "it ends as the program does");
    assert!(is_free(&admin) && server.in_use().is_empty(), "it is given back");
    assert!(server.use_lease(&token).unwrap_err().contains("has ended"));
    assert!(!std::path::Path::new(&lease).exists() && !std::path::Path::new(&key).exists());
    let why: Why = admin.ask(Method::GET, "/v1/leases/1/why").unwrap();
    let why = why.sentences.join(" ");
    assert!(
        why.contains("ada (group everybody)") && why.contains("its owner gave it back"),
        "{why}"
    );
}

#[test]
fn a_lease_is_given_back_by_whatever_signal_the_program_ends() {
    let (broker, _server, client, admin) = pool(1);
    for signal in [Signal::TERM, Signal::HUP, Signal::USR1] {
        let mut run = Run::start(&broker, &client, &["--gpus", "1"]);
        run.lines.find("ready");
        // Open until the program has ended: `wait` closes what the child still has, and `cat` would
        // end before a slow `outboard` passes the signal on.
        let _input = run.child.stdin.take();
        let pid = Pid::from_child(&run.child);
        kill_process(pid, signal).unwrap();
        let status = run.child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{signal:?}");
        assert!(is_free(&admin), "{signal:?}");
    }
    // A program that cannot be started has none either.
    let failed =
        broker.command(&client, &["run", "--no-check", "--gpus", "1", "--", "/there/is/none"]);
    assert_eq!(failed.status.code(), Some(127), "{}", said(&failed));
    assert!(is_free(&admin));
}

#[test]
fn who_waits_is_told_where_and_why_and_gets_it() {
    let (broker, _server, client, admin) = pool(1);
    let mut first = Run::start(&broker, &client, &["--gpus", "1"]);
    first.lines.find("ready");
    let refused =
        broker.command(&client, &["run", "--no-check", "--gpus", "1", "--no-wait", "--", "true"]);
    let text = said(&refused);
    assert!(!refused.status.success() && text.contains("OB1003"), "{text}");
    assert!(text.contains("no device of that kind is unused"), "{text}");
    let late = broker
        .command(&client, &["run", "--no-check", "--gpus", "1", "--wait", "1s", "--", "true"]);
    let text = said(&late);
    assert!(!late.status.success() && text.contains("nothing was free within 1 s"), "{text}");
    let never = broker.command(&client, &["run", "--no-check", "--gpus", "2", "--", "true"]);
    assert!(said(&never).contains("the pool could not give that"), "{}", said(&never));

    let waiting = |owner: &str| {
        let mut child = command()
            .args(["run", "--no-check", "--gpus", "1", "--", "echo", "has it"])
            .envs(broker.variables(&broker.token("client", owner)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("outboard starts");
        let told = Lines::of(child.stderr.take());
        (child, told)
    };
    let (second, told) = waiting("bob");
    told.find("waiting at place 1 of 1: no device of that kind is unused");
    let (third, told) = waiting("eve");
    told.find("waiting at place 2 of 2: one request before it waits");
    let queue = broker.command(&client, &["pool", "queue"]);
    let text = said(&queue);
    assert!(text.contains("bob") && text.contains("eve") && text.contains("exclusive"), "{text}");
    drop(first.child.stdin.take());
    first.child.wait().unwrap();
    for child in [second, third] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "has it\n");
    }
    told.find("waiting at place 1 of 1");
    assert!(is_free(&admin));
}

#[test]
fn everybody_may_do_what_their_role_says_and_no_more() {
    let (broker, _server, client, _) = pool(1);
    let of = |role: &str| broker.for_token(&broker.token(role, role));
    let (server, viewer, admin) = (of("server"), of("viewer"), of("admin"));
    let beat = serde_json::json!({});
    let asked = |broker: &Blocking, owner: &str| request(broker, &ask(owner, 1, 0));
    // Servers do not lease, clients do not register, viewers do neither.
    assert_eq!(status(asked(&server, "server")), 403);
    assert_eq!(status(asked(&viewer, "viewer")), 403);
    for other in [&viewer, &admin, &broker.for_token(&client)] {
        assert_eq!(status(other.tell::<()>(Method::POST, "/v1/beat", &beat)), 403);
    }
    for path in ["/v1/pool", "/v1/usage", "/metrics", "/v1/leases/1/why"] {
        assert_eq!(status(server.bytes(Method::GET, path)), 403, "{path}");
    }
    assert!(viewer.bytes(Method::GET, "/metrics").unwrap().ends_with(b"# EOF\n"));
    // A client has its own name, and no priority.
    let ada = broker.for_token(&client);
    assert_eq!(status(asked(&ada, "bob")), 403);
    let mut other = ask("ada", 1, 0);
    other.request.group = "vision".parse().unwrap();
    assert_eq!(status(request(&ada, &other)), 403);
    other = ask("ada", 1, 0);
    other.request.priority = 9;
    assert_eq!(status(request(&ada, &other)), 403);
    let grant = granted(asked(&ada, "ada").unwrap());
    // Others neither see its token, nor end it; an admin does.
    let bob = broker.for_token(&broker.token("client", "bob"));
    let path = format!("/v1/leases/{}", grant.number);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(status(bob.bytes(method, &path)), 403);
    }
    assert_eq!(status(viewer.bytes(Method::DELETE, &path)), 403);
    assert_eq!(ada.ask::<Grant>(Method::GET, &path).unwrap().number, grant.number);
    admin.bytes(Method::DELETE, &path).unwrap();
    assert_eq!(status(ada.bytes(Method::GET, &path)), 409);
    assert!(is_free(&admin));
    // An admin asks for others.
    let theirs = granted(asked(&admin, "bob").unwrap());
    assert_eq!(
        bob.ask::<Grant>(Method::GET, &format!("/v1/leases/{}", theirs.number)).unwrap().number,
        theirs.number
    );
    // Who shows nothing, or a lease in place of a token, is nobody.
    for nobody in ["", "obt_00", &grant.token] {
        assert_eq!(status(broker.for_token(nobody).bytes(Method::GET, "/v1/me")), 401);
    }
}

#[test]
fn a_scheduler_asks_for_others_and_ends_what_it_has_asked_for() {
    let (mut broker, _server, client, admin) = pool(2);
    let of = |broker: &PoolBroker, role, owner| broker.for_token(&broker.token(role, owner));
    let slurm = of(&broker, "scheduler", "slurm");
    let job = |owner: &str| Ask {
        purpose: Some("slurm.c.1".parse().unwrap()),
        life_seconds: Some(600),
        for_seconds: Some(600),
        ..ask(owner, 1, 0)
    };
    // What only schedulers may.
    let ada = broker.for_token(&client);
    assert_eq!(status(request(&ada, &job("ada"))), 403);
    assert_eq!(status(slurm.tell::<()>(Method::POST, "/v1/beat", &serde_json::json!({}))), 403);
    let path = "/v1/purposes/slurm.c.1";
    assert_eq!(status(slurm.bytes(Method::GET, path)), 404);
    for wrong in ["/v1/purposes/a%2fb", "/v1/purposes/"] {
        assert_eq!(status(slurm.bytes(Method::GET, wrong)), 400, "{wrong}");
    }
    let grant = granted(request(&slurm, &job("ada")).unwrap());
    assert!(grant.expires.duration_since(jiff::Timestamp::now()).as_secs() > 590);

    // It may ask again, also a broker that was killed meanwhile.
    broker.kill();
    broker.restart();
    assert_eq!(granted(request(&slurm, &job("ada")).unwrap()).number, grant.number);
    let found: Standing = slurm.ask(Method::GET, path).unwrap();
    assert_eq!(granted(found).number, grant.number);
    let seen = &view(&admin).leases[0];
    assert_eq!((seen.owner.as_str(), seen.asked_by.as_str()), ("ada", "slurm"));
    assert_eq!(seen.purpose.as_ref().map(|purpose| purpose.as_str()), Some("slurm.c.1"));

    // Another scheduler, and whose it is not, end nothing; nor does it what others asked for.
    let number = format!("/v1/leases/{}", grant.number);
    let kubernetes = of(&broker, "scheduler", "kubernetes");
    for other in [&kubernetes, &of(&broker, "client", "bob")] {
        assert_eq!(status(other.bytes(Method::DELETE, &number)), 403);
        assert_eq!(status(other.bytes(Method::DELETE, path)), 404);
    }
    // Who asked for it has it prolonged, and an admin; its owner does not.
    let prolong = |who: &Blocking, path: &str, seconds: u32| {
        let seconds = serde_json::json!({ "for_seconds": seconds });
        who.tell::<Grant>(Method::POST, &format!("{path}/prolong"), &seconds)
    };
    for other in [&kubernetes, &ada, &of(&broker, "client", "bob")] {
        assert_eq!(status(prolong(other, &number, 6000)), 403);
    }
    let lasts = |grant: &Grant| grant.expires.duration_since(jiff::Timestamp::now()).as_secs();
    assert!(lasts(&prolong(&slurm, &number, 6000).unwrap()) > 5990);
    assert!(lasts(&prolong(&admin, &number, 60).unwrap()) > 5990, "it becomes no shorter");
    let own = granted(request(&ada, &ask("ada", 1, 0)).unwrap());
    let own = format!("/v1/leases/{}", own.number);
    assert_eq!(status(slurm.bytes(Method::DELETE, &own)), 403);
    ada.bytes(Method::DELETE, &own).unwrap();

    slurm.bytes(Method::DELETE, path).unwrap();
    let why: Why = slurm.ask(Method::GET, &format!("{number}/why")).unwrap();
    let why = why.sentences.join(" ");
    assert!(why.contains("slurm, for ada (group everybody), asked for it as slurm.c.1"), "{why}");
    assert!(why.contains("the scheduler slurm ended it"), "{why}");
    assert!(is_free(&admin));
}

#[test]
fn what_was_said_once_is_no_use_to_others_or_later() {
    let (broker, server, client, admin) = pool(1);
    let ada = broker.for_token(&client);
    let grant = granted(request(&ada, &ask("ada", 1, 0)).unwrap());
    let bob = broker.for_token(&broker.token("client", "bob"));
    let Standing::Waiting { ticket, .. } = request(&bob, &ask("bob", 1, 60)).unwrap() else {
        panic!("there is one device");
    };
    let path = format!("/v1/requests/{ticket}");
    // Another's ticket is none.
    assert_eq!(status(ada.bytes(Method::GET, &path)), 404);
    assert_eq!(status(ada.bytes(Method::DELETE, &path)), 404);
    bob.bytes(Method::DELETE, &path).unwrap();
    assert_eq!(status(bob.bytes(Method::GET, &path)), 404, "it has been withdrawn");
    // A lease that was given back is not renewed.
    let lease = format!("/v1/leases/{}", grant.number);
    ada.bytes(Method::DELETE, &lease).unwrap();
    assert_eq!(status(ada.bytes(Method::POST, &(lease + "/renew"))), 409);
    assert!(is_free(&admin));
    assert!(server.use_lease(&grant.token).is_err(), "the server was told");
    // The name of a server is its first owner's.
    let mallory = broker.for_token(&broker.token("server", "mallory"));
    let beat = serde_json::json!({
        "server": { "name": "gpu1", "driver": "1", "labels": {}, "condition": "ready", "devices": [] },
        "address": "evil:1", "fingerprint": null, "release": "", "in_use": [],
    });
    assert_eq!(status(mallory.tell::<()>(Method::POST, "/v1/beat", &beat)), 403);
    assert_eq!(view(&admin).servers[0].address, "gpu1:9470");
    // A revoked token is none, and its leases end.
    granted(request(&ada, &ask("ada", 1, 0)).unwrap());
    let state = broker.state.path("broker");
    let revoked = outboard(&["token", "--broker", "--state", &state, "revoke", "ada"]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    assert!(is_free(&admin));
    assert_eq!(status(ada.bytes(Method::GET, "/v1/me")), 401);
}

#[test]
fn a_broker_that_is_away_is_told_or_waited_for() {
    let mut broker = PoolBroker::start(&[]);
    let (server, client) = (broker.token("server", "gpu1"), broker.token("client", "ada"));
    let _server = PlayedServer::start(&broker, &server, "gpu1", 1);
    broker.kill();
    let away = broker.command(&client, &["run", "--no-check", "--gpus", "1", "--", "true"]);
    let text = said(&away);
    assert!(!away.status.success() && text.contains("OB1001"), "{text}");
    assert!(text.contains("cannot be reached") && text.contains("--wait"), "{text}");
    let mut waiting = command()
        .args(["run", "--no-check", "--gpus", "1", "--wait", "2m", "--", "true"])
        .envs(broker.variables(&client))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Lines::of(waiting.stderr.take()).find("waiting for it");
    broker.restart();
    assert!(waiting.wait().unwrap().success());
    // Another certificate is another broker.
    let mut variables = broker.variables(&client);
    variables[1].1 = format!("sha256:{}", "00".repeat(32));
    let other = command().args(["pool"]).envs(variables).output().unwrap();
    assert!(said(&other).contains("OB1004"), "{}", said(&other));
}

#[test]
fn a_killed_broker_goes_on_with_all_leases() {
    let (mut broker, server, client, _) = pool(2);
    let mut run = Run::start(&broker, &client, &["--gpus", "1"]);
    let token = std::fs::read_to_string(run.find("lease")).unwrap();
    run.lines.find("ready");
    server.use_lease(&token).unwrap();
    // Somebody waits meanwhile, and is not forgotten for good.
    let mut two = command()
        .args(["run", "--no-check", "--gpus", "2", "--", "echo", "both"])
        .envs(broker.variables(&broker.token("client", "bob")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let admin = broker.for_token(&broker.token("admin", "root"));
    assert!(within(PATIENCE, || view(&admin).queue.len() == 1));
    for _ in 0..3 {
        broker.kill();
        assert_eq!(server.in_use(), [LeaseNumber(1)], "the program goes on");
        broker.restart();
        if !within(PATIENCE, || view(&admin).queue.len() == 1) {
            two.kill().unwrap();
            panic!("nobody waits: {}", said(&two.wait_with_output().unwrap()));
        }
        let seen = view(&admin);
        assert_eq!((seen.leases.len(), seen.leases[0].number), (1, LeaseNumber(1)));
    }
    drop(run.child.stdin.take());
    run.child.wait().unwrap();
    let output = two.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let why: Why = admin.ask(Method::GET, "/v1/leases/2/why").unwrap();
    assert!(why.sentences[0].contains("bob"), "{why:?}");
}

#[test]
fn two_brokers_do_not_share_a_folder() {
    let (broker, _server, client, _) = pool(1);
    let state = broker.state.path("broker");
    let second = outboard(&["broker", "--listen", "127.0.0.1:0", "--state", &state]);
    let text = said(&second);
    assert!(!second.status.success() && text.contains("OB1005"), "{text}");
    assert!(text.contains("another broker uses"), "{text}");
    let first = broker.command(&client, &["pool"]);
    assert!(said(&first).contains("GPU-gpu1-0"), "{}", said(&first));
}

#[test]
fn a_broker_tells_its_manager_that_it_is_ready_and_that_it_stops() {
    let folder = Folder::create();
    let socket = folder.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = command()
        .args(["broker", "--listen", "127.0.0.1:0", "--state", &folder.path("state")])
        .args(["--log-format", "json"])
        .env("NOTIFY_SOCKET", &socket)
        .stderr(Stdio::piped())
        .spawn()
        .expect("outboard starts");
    let log = Lines::of(child.stderr.take());
    let told = || {
        let mut bytes = [0; 1024];
        let length = manager.recv(&mut bytes).expect("something is told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let ready = told();
    assert!(
        ready.contains("READY=1") && ready.contains("STATUS=brokering at 127.0.0.1:"),
        "{ready}"
    );
    let line: serde_json::Value = serde_json::from_str(&log.find("brokering")).expect("JSON");
    assert!(line["fields"]["fingerprint"].as_str().unwrap().starts_with("sha256:"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(told().contains("STOPPING=1"));
    assert!(child.wait().unwrap().success());
}

#[test]
fn quotas_are_kept_and_use_is_counted() {
    let folder = Folder::create();
    let quotas = folder.write(
        "quotas.toml",
        "[owners.ada]\ngroup = \"vision\"\n[groups.vision]\ndevices = 1\nmemory = \"100G\"\n",
    );
    let broker = PoolBroker::start(&["--quotas", &quotas, "--policy", "spread"]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 3);
    let client = broker.token("client", "ada");
    let mut first = Run::start(&broker, &client, &["--gpus", "1"]);
    first.lines.find("ready");
    let more =
        broker.command(&client, &["run", "--no-check", "--gpus", "1", "--no-wait", "--", "true"]);
    assert!(said(&more).contains("group vision has 1 device"), "{}", said(&more));
    let never = broker.command(&client, &["run", "--no-check", "--gpus", "2", "--", "true"]);
    assert!(said(&never).contains("larger quota"), "{}", said(&never));
    let owners = said(&broker.command(&client, &["pool", "owners"]));
    assert!(owners.contains("ada") && owners.contains("vision"), "{owners}");
    std::thread::sleep(Duration::from_millis(1500));
    let usage = said(&broker.command(&client, &["pool", "usage", "--csv"]));
    let (head, row) = usage.split_once("\r\n").expect("two lines");
    assert_eq!(head, "day,owner,group,model,device_seconds,gib_seconds");
    let fields: Vec<&str> = row.trim().split(',').collect();
    assert_eq!(fields[1..4], ["ada", "vision", "Played 80GB"]);
    assert!(fields[4].parse::<u64>().unwrap() >= 1, "{usage}");
    assert!(fields[5].parse::<u64>().unwrap() >= 80, "{usage}");
    let by_group = said(&broker.command(&client, &["pool", "usage", "--by", "group", "--json"]));
    let by_group: serde_json::Value = serde_json::from_str(&by_group).unwrap();
    assert_eq!(by_group[0]["group"], "vision");
    assert!(by_group[0]["device_seconds"].as_u64() >= Some(1), "{by_group}");
    drop(first.child.stdin.take());
    first.child.wait().unwrap();
    let wrong = folder.write("wrong.toml", "[owner.ada]\n");
    let state = folder.path("other");
    let refused = outboard(&["broker", "--state", &state, "--quotas", &wrong]);
    assert!(said(&refused).contains("wrong.toml cannot be used"), "{}", said(&refused));
}

#[test]
fn certificates_have_roles_too() {
    let folder = Folder::create();
    let ca = Authority::new("the pool's authority");
    let file = folder.write("ca.crt", &ca.certificate);
    let [certificate, key] = ca.sign(&folder, "broker", 2099);
    let flags = ["--client-ca", &file, "--tls-cert", &certificate, "--tls-key", &key];
    let broker = PoolBroker::start(&flags);
    let with = |name: &str, unit: Option<&str>, ca: &Authority| {
        let [certificate, key] = ca.sign_as(&folder, name, unit, 2099);
        let settings = Settings {
            authorities: Some((&file).into()),
            certificate: Some(certificate.into()),
            key: Some(key.into()),
            fingerprint: None,
            token: None,
            ..broker.settings("")
        };
        Blocking::new(settings.access().unwrap()).unwrap()
    };
    let me = |broker: &Blocking| broker.ask::<Me>(Method::GET, "/v1/me");
    for (unit, role) in [
        (None, Role::Client),
        (Some("server"), Role::Server),
        (Some("admin"), Role::Admin),
        (Some("viewer"), Role::Viewer),
    ] {
        let said = me(&with("ada", unit, &ca)).unwrap();
        assert_eq!((said.owner.as_str(), said.role), ("ada", role));
    }
    assert_eq!(status(me(&with("ada", Some("engineering"), &ca))), 401);
    assert_eq!(status(me(&with("no owner", None, &ca))), 401);
    // Another authority signs what it likes.
    let other = Authority::new("another one");
    let refused = me(&with("ada", Some("admin"), &other));
    assert!(
        matches!(refused, Err(AskError::Away { .. } | AskError::Strange { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_silent_server_gets_nothing_new() {
    let (broker, server, client, admin) = pool(1);
    server.be_silent(true);
    let silent = || view(&admin).servers[0].condition == Condition::Silent;
    assert!(within(Duration::from_secs(20), silent), "10 s are over");
    let refused =
        broker.command(&client, &["run", "--no-check", "--gpus", "1", "--no-wait", "--", "true"]);
    assert!(said(&refused).contains("draining or silent"), "{}", said(&refused));
    assert!(said(&broker.command(&client, &["pool"])).contains("silent"));
    server.be_silent(false);
    let served = broker.command(&client, &["run", "--no-check", "--gpus", "1", "--", "true"]);
    assert!(served.status.success(), "{}", said(&served));
}

/// The memory of a process, in MiB.
fn memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn ten_thousand_requests_at_once_have_their_places() {
    const CONNECTIONS: usize = 50;
    const EACH: usize = 200;
    let (broker, _server, client, admin) = pool(1);
    let ada = broker.for_token(&client);
    granted(request(&ada, &ask("ada", 1, 0)).unwrap());
    let before = memory(broker.process());
    // Each owner has a token of its own.
    let tokens: Vec<String> =
        (0..CONNECTIONS).map(|at| broker.token("client", &format!("owner{at}"))).collect();
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    let mut all = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let access = broker.settings(token).access().unwrap();
        all.push(tasks.spawn_local(async move {
            let broker = outboard_broker_client::Broker::new(access);
            let mut connection = broker.open().await.unwrap();
            let ask = ask(&format!("owner{at}"), 1, 600);
            let mut tickets = Vec::new();
            for _ in 0..EACH {
                let standing = connection.ask(Method::POST, "/v1/requests", Some(&ask)).await;
                match standing.unwrap() {
                    Standing::Waiting { ticket, place, of, .. } => {
                        tickets.push((ticket, place, of))
                    }
                    granted => panic!("{granted:?}"),
                }
            }
            tickets
        }));
    }
    let mut places: Vec<(u64, u32, u32)> = Vec::new();
    tasks.block_on(&runtime, async {
        for task in all {
            places.extend(task.await.unwrap());
        }
    });
    let took = begin.elapsed();
    places.sort_unstable();
    assert_eq!(places.len(), CONNECTIONS * EACH);
    for (rank, (ticket, place, of)) in (1..).zip(&places) {
        assert!(place <= of, "{place} of {of}");
        // Those whom nobody asks after leave, and then the rest move up.
        assert!(*place <= rank, "ticket {ticket} is the {rank}th, and has place {place}");
    }
    let tickets: BTreeSet<u64> = places.iter().map(|(ticket, ..)| *ticket).collect();
    assert_eq!(tickets.len(), places.len(), "each has a ticket of its own");
    let grown = memory(broker.process()) - before;
    eprintln!("10,000 requests took {took:?}, and the broker grew by {grown} MiB");
    assert!(grown < 200, "the broker has grown by {grown} MiB");
    // Nobody asks after them, so that they go, and others are served as ever.
    assert!(within(PATIENCE, || view(&admin).queue.is_empty()));
    admin.bytes(Method::DELETE, "/v1/leases/1").unwrap();
    assert!(is_free(&admin));
    granted(request(&ada, &ask("ada", 1, 10)).unwrap());
}
