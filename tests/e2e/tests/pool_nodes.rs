//! What a node of Slurm can do at a broker by its token.

use outboard_broker_client::{AskError, Blocking, Method};
use outboard_e2e::{Brokers, PATIENCE, PlayedServer, PoolBroker, command, copy_common, within};
use outboard_pool::api::{Grant, JobAsk, JobGrant, Me, Role, Standing};
use outboard_pool::words::{MayShare, Request};
use outboard_test_support::skip;
use outboard_transport::client_key::ClientKey;
use serde_json::json;

const JOB: &str = "/v1/jobs/slurm.blue.7";

fn job(nodes: &[&str]) -> JobAsk {
    let (owner, group) = ("ada".parse().unwrap(), "everybody".parse().unwrap());
    JobAsk {
        request: Request { may_share: MayShare::SameKey, ..Request::new(owner, group, 1) },
        purpose: "slurm.blue.7".parse().unwrap(),
        nodes: nodes.iter().map(|name| name.parse().unwrap()).collect(),
        for_seconds: Some(600),
        life_seconds: Some(600),
    }
}

fn ask(broker: &Blocking, job: &JobAsk) -> Result<Grant, AskError> {
    let standing = broker.tell(Method::POST, "/v1/jobs", job)?;
    let Standing::Granted(grant) = standing else { panic!("a device is free: {standing:?}") };
    Ok(grant)
}

fn fetch(broker: &Blocking) -> Result<JobGrant, AskError> {
    broker.ask(Method::GET, JOB)
}

fn refusal<T>(answer: Result<T, AskError>) -> (u16, String) {
    match answer {
        Err(AskError::Refused { status, sentence }) => (status, sentence),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

fn status<T>(answer: Result<T, AskError>) -> u16 {
    refusal(answer).0
}

#[test]
fn a_node_gets_the_leases_of_its_own_jobs_and_nothing_else() {
    let mut broker = PoolBroker::start(&[]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 2);
    let of = |broker: &PoolBroker, role, owner| broker.for_token(&broker.token(role, owner));
    let slurm = of(&broker, "scheduler", "slurm");
    let [n1, n2, n3, red] =
        ["n1@slurm", "n2@slurm", "n3@slurm", "n1@red"].map(|owner| of(&broker, "node", owner));

    assert_eq!(status(fetch(&n1)), 404);
    let grant = ask(&slurm, &job(&["n1", "n2"])).unwrap();
    let fetched = fetch(&n1).unwrap();
    assert_eq!(fetched.grant.number, grant.number);
    assert!(ClientKey::from_pem(fetched.key.as_bytes()).is_ok());
    let key = fetched.key;
    assert!(fetch(&n2).unwrap().key == key, "a job has one key on all nodes");
    assert!(fetch(&slurm).unwrap().key == key, "who has asked for it");
    broker.log.find("a job's key was fetched with the scheduler's token");

    // A job on other nodes, another cluster's node of that name, others of the pool.
    for other in [&n3, &red] {
        let (status, sentence) = refusal(fetch(other));
        assert_eq!(status, 404, "{sentence}");
        assert!(sentence.contains("has no lease for slurm.blue.7 on n"), "{sentence}");
    }
    for (role, owner) in [("client", "ada"), ("viewer", "slurm"), ("server", "slurm")] {
        assert_eq!(status(fetch(&of(&broker, role, owner))), 403, "{role}");
    }
    for (role, owner) in [("scheduler", "red"), ("admin", "root")] {
        assert_eq!(status(fetch(&of(&broker, role, owner))), 404, "{role}");
    }

    // All else that a broker does, it does not do for a node: not even for one of the job.
    let me: Me = n1.ask(Method::GET, "/v1/me").unwrap();
    assert_eq!((me.owner.as_str(), me.role), ("n1@slurm", Role::Node));
    let lease = format!("/v1/leases/{}", grant.number);
    let why = format!("{lease}/why");
    for node in [&n1, &n3] {
        for path in ["/v1/pool", "/v1/history", "/v1/usage", "/metrics", &why, &lease] {
            assert_eq!(status(node.bytes(Method::GET, path)), 403, "{path}");
        }
        let purpose = "/v1/purposes/slurm.blue.7";
        for (method, path) in [
            (Method::GET, purpose),
            (Method::DELETE, purpose),
            (Method::DELETE, &lease),
            (Method::DELETE, "/v1/servers/gpu1"),
            (Method::POST, &format!("{lease}/renew")),
        ] {
            assert_eq!(status(node.bytes(method, path)), 403, "{path}");
        }
        let own = json!({ "request": job(&["n1"]).request, "client_key": "ab".repeat(32) });
        let longer = json!({ "for_seconds": 6000 });
        assert_eq!(status(node.tell::<Standing>(Method::POST, "/v1/requests", &own)), 403);
        assert_eq!(status(ask(node, &job(&["n3"]))), 403);
        let prolong = format!("{lease}/prolong");
        assert_eq!(status(node.tell::<Grant>(Method::POST, &prolong, &longer)), 403);
        assert_eq!(status(node.tell::<()>(Method::POST, "/v1/beat", &json!({}))), 403);
    }

    // The key is made again, and is written nowhere.
    broker.kill();
    broker.restart();
    assert!(fetch(&n1).unwrap().key == key);
    slurm.bytes(Method::DELETE, "/v1/purposes/slurm.blue.7").unwrap();
    assert_eq!(status(fetch(&n1)), 404);
}

/// etcd holds no keys: the broker that leads next makes the same one again.
#[test]
fn the_next_broker_to_lead_gives_out_the_same_key() {
    let Some(mut brokers) = Brokers::start(2, 0, &[]) else { skip!("there is no etcd") };
    let first = &brokers.all[0];
    let (slurm, node) = (first.token("scheduler", "slurm"), first.token("node", "n1@slurm"));
    copy_common(&first.state, &brokers.all[1].state);
    let _server = PlayedServer::of(brokers.for_token(&brokers.tokens.server), "gpu1", 1);
    let (slurm, node) = (brokers.for_token(&slurm), brokers.for_token(&node));
    assert!(within(PATIENCE, || ask(&slurm, &job(&["n1"])).is_ok()), "there is a device");
    let before = fetch(&node).unwrap();
    let leader = brokers.leader(None);
    brokers.all[leader].kill();
    brokers.leader(Some(leader));
    let mut after = None;
    let is_answered = || {
        after = fetch(&node).ok();
        after.is_some()
    };
    assert!(within(PATIENCE, is_answered), "the next one knows the job");
    let after = after.unwrap();
    assert!((after.grant.number, after.key) == (before.grant.number, before.key));
}

#[test]
fn a_job_that_makes_no_sense_gets_a_sentence() {
    let broker = PoolBroker::start(&[]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 2);
    let of = |role, owner| broker.for_token(&broker.token(role, owner));
    let (slurm, ada, n1) = (of("scheduler", "slurm"), of("client", "ada"), of("node", "n1@slurm"));
    assert_eq!(status(ask(&ada, &job(&["n1"]))), 403);
    let (status, sentence) = refusal(ask(&slurm, &job(&[])));
    assert!(status == 400 && sentence.contains("has 1 to 4096 nodes, not 0"), "{sentence}");
    // As a controller of an earlier release asks: with a key that the broker does not have.
    let JobAsk { request, purpose, .. } = job(&[]);
    let own = json!({ "request": request, "client_key": "ab".repeat(32), "purpose": purpose });
    slurm.tell::<Standing>(Method::POST, "/v1/requests", &own).unwrap();
    let (status, sentence) = refusal(fetch(&slurm));
    assert!(
        status == 409 && sentence.contains("a key that the broker does not have"),
        "{sentence}"
    );
    assert_eq!(refusal(fetch(&n1)).0, 404);
    let (status, sentence) = refusal(ask(&slurm, &job(&["n1"])));
    assert!(status == 409 && sentence.contains("bound to another key"), "{sentence}");
}

#[test]
fn a_nodes_token_names_its_node() {
    let broker = PoolBroker::start(&[]);
    let state = broker.state.path("broker");
    for owner in ["n1", "@slurm", "slurm"] {
        let made = command()
            .args(["token", "create", "--broker", "--state", &state])
            .args(["--role", "node", "--owner", owner])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(!made.status.success() && said.contains("NODE@SCHEDULER"), "{owner}: {said}");
    }
}
