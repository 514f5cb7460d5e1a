use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_token_is_accepted_until_it_expires_or_is_revoked() {
    let folder = tempdir().unwrap();
    let limits = Limits { memory: Some(20 << 30), sessions: Some(2), ..Limits::default() };
    let (token, record) = create(folder.path(), "alice", Some(at(2_000_000_000)), limits).unwrap();
    let (other, _) = create(folder.path(), "bob", None, Limits::default()).unwrap();
    assert!(token.starts_with("obt_") && token.len() == 4 + 64 && token != other);
    let known = Known::open(folder.path());
    let alice = Identity { owner: "alice".into(), token: Some(record.id.clone()), limits };
    assert_eq!(known.check(&token, at(1_900_000_000)), Ok(alice.clone()));
    assert_eq!(known.check(&other, at(1_900_000_000)).unwrap().owner, "bob");
    let expired = Unaccepted::NoLonger(record.id.clone(), TokenState::Expired);
    assert_eq!(known.check(&token, at(2_000_000_000)), Err(expired));
    for wrong in [
        "",
        "obt_",
        &token[..67],
        &format!("{token}0"),
        &token.to_uppercase(),
        &record.id,
        &record.hash,
    ] {
        assert_eq!(known.check(wrong, at(1_900_000_000)), Err(Unaccepted::Unknown), "{wrong}");
    }
    assert!(known.take_changed() && !known.take_changed() && !known.is_over(&alice));
    assert!(
        known.may_start(&alice, at(1_900_000_000)) && !known.may_start(&alice, at(2_000_000_000))
    );

    assert_eq!(revoke(folder.path(), &record.id).unwrap(), 1);
    // As when somebody shows a token.
    known.refresh();
    let revoked = Unaccepted::NoLonger(record.id.clone(), TokenState::Revoked);
    assert_eq!(known.check(&token, at(1_900_000_000)), Err(revoked));
    assert!(known.take_changed(), "a change is noticed, though somebody has shown a token since");
    assert!(
        !known.may_start(&alice, at(1_900_000_000)),
        "who has waited meanwhile does not get in"
    );
    assert!(known.is_over(&alice), "its sessions end");
    assert!(!known.is_over(&Identity::user(0)) && !known.is_over(&Identity::anonymous()));
    assert_eq!(revoke(folder.path(), "bob").unwrap(), 1);
    assert_eq!(revoke(folder.path(), "bob").unwrap(), 0);
    assert!(matches!(revoke(folder.path(), "carol"), Err(TokenError::None(_))));
    assert!(known.take_changed() && known.any());
}

#[test]
fn the_file_holds_no_token_and_is_its_owners_alone() {
    let above = tempdir().unwrap();
    let folder = &above.path().join("state");
    let (token, record) = create(folder, "alice", None, Limits::default()).unwrap();
    let path = file(folder);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains(&record.id)
            && text.contains("alice")
            && !text.contains(&token)
            && !text.contains(&token[4..])
    );
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(list(folder).unwrap(), [record]);

    // Somebody who can write to it could let anybody in.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(list(folder).unwrap_err().to_string().contains("others"));
    let known = Known::open(folder);
    assert!(known.problem().is_some() && !known.any());
    assert_eq!(known.check(&token, now()), Err(Unaccepted::Unknown));
}

#[test]
fn a_damaged_file_lets_nobody_in_and_ends_nothing() {
    let folder = tempdir().unwrap();
    let (token, record) = create(folder.path(), "alice", None, Limits::default()).unwrap();
    let known = Known::open(folder.path());
    let alice = known.check(&token, now()).unwrap();
    for damaged in ["", "{", "{\"tokens\": [{}]}", "{\"tokens\": 5}"] {
        std::fs::write(file(folder.path()), damaged).unwrap();
        known.refresh();
        assert!(known.problem().is_some());
        assert!(known.check(&token, now()).is_err(), "{damaged}");
        assert!(!known.is_over(&alice));
    }
    revoke_is_noticed_after_damage(folder.path(), &known, &alice, &record);
}

fn revoke_is_noticed_after_damage(folder: &Path, known: &Known, alice: &Identity, record: &Record) {
    let kept = Contents { tokens: vec![record.clone()] };
    std::fs::write(file(folder), serde_json::to_vec(&kept).unwrap()).unwrap();
    revoke(folder, &record.id).unwrap();
    assert!(known.take_changed() && known.is_over(alice));
}

#[test]
fn a_file_that_is_gone_lets_nobody_in_and_ends_nothing() {
    let folder = tempdir().unwrap();
    let known = Known::open(folder.path());
    assert!(known.problem().is_none() && !known.any(), "there need not be one");
    let (token, record) = create(folder.path(), "alice", None, Limits::default()).unwrap();
    assert!(known.take_changed());
    let alice = known.check(&token, now()).unwrap();
    let moved = folder.path().join("moved");
    std::fs::rename(file(folder.path()), &moved).unwrap();
    assert!(known.take_changed() && known.problem().is_some(), "it is told");
    assert!(known.check(&token, now()).is_err() && !known.may_start(&alice, now()));
    assert!(!known.is_over(&alice), "nobody has revoked it");
    std::fs::rename(&moved, file(folder.path())).unwrap();
    known.refresh();
    assert!(
        known.problem().is_none() && known.check(&token, now()).is_ok() && !known.is_over(&alice)
    );
    assert_eq!(list(folder.path()).unwrap(), [record]);
}

#[test]
fn a_tokens_name_is_its_own() {
    let folder = tempdir().unwrap();
    let (_, record) = create(folder.path(), "alice", None, Limits::default()).unwrap();
    assert!(matches!(
        create(folder.path(), &record.id, None, Limits::default()),
        Err(TokenError::Owner(_))
    ));
    let twice =
        Contents { tokens: vec![record.clone(), Record { owner: "bob".into(), ..record.clone() }] };
    std::fs::write(file(folder.path()), serde_json::to_vec(&twice).unwrap()).unwrap();
    assert!(list(folder.path()).unwrap_err().to_string().contains(&record.id));
    assert!(Known::open(folder.path()).problem().is_some());
}

#[test]
fn owners_have_plain_names_of_their_own() {
    for name in ["alice", "a.b_c-d@example.org", "Zoë", "7", "deadbee", "deadbeefs"] {
        assert!(is_owner(name), "{name}");
    }
    for name in ["", "anonymous", "user:0", "deadbeef", "a b", "a/b", "..\n", &"x".repeat(65)] {
        assert!(!is_owner(name), "{name}");
    }
    let folder = tempdir().unwrap();
    assert!(matches!(
        create(folder.path(), "user:0", None, Limits::default()),
        Err(TokenError::Owner(_))
    ));
}

#[test]
fn wrong_expired_and_revoked_take_the_same_time() {
    let folder = tempdir().unwrap();
    let (expired, _) = create(folder.path(), "alice", Some(at(1)), Limits::default()).unwrap();
    for owner in 0..50 {
        create(folder.path(), &format!("owner{owner}"), None, Limits::default()).unwrap();
    }
    let (revoked, record) = create(folder.path(), "bob", None, Limits::default()).unwrap();
    revoke(folder.path(), &record.id).unwrap();
    let known = Known::open(folder.path());
    let wrong = format!("obt_{}", "5".repeat(64));
    // The median of many, in turns: what else happens on the machine hits all alike.
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..4000 {
        for (times, token) in times.iter_mut().zip([&wrong, &expired, &revoked]) {
            let start = Instant::now();
            assert!(std::hint::black_box(known.check(token, now())).is_err());
            times.push(start.elapsed());
        }
    }
    let medians = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let (least, most) = (medians.iter().min().unwrap(), medians.iter().max().unwrap());
    // A look-up that stops at the first match, or compares up to the first difference, would be a
    // multiple.
    assert!(*most < *least * 3 / 2 + Duration::from_micros(2), "{medians:?}");
}

#[test]
fn a_broker_knows_roles_and_a_server_clients_only() {
    let folder = tempdir().unwrap();
    let (old, _) = create(folder.path(), "alice", None, Limits::default()).unwrap();
    let known = || Known::open(folder.path());
    assert_eq!(known().check_as(&old, at(0)).map(|(_, role)| role), Ok(Role::Client));
    for role in Role::ALL {
        let owner = if role == Role::Node { "n1@slurm" } else { "bob" };
        let (token, _) =
            create_as(folder.path(), owner, Some(role), None, Limits::default()).unwrap();
        assert_eq!(known().check_as(&token, at(0)).map(|(_, role)| role), Ok(role));
        assert_eq!(known().check(&token, at(0)).is_ok(), role == Role::Client, "{role}");
    }
    let nameless = create_as(folder.path(), "slurm", Some(Role::Node), None, Limits::default());
    assert!(nameless.unwrap_err().to_string().contains("NODE@SCHEDULER"));
}
