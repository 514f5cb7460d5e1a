//! Which key signs leases, and which keys servers are to believe.
//!
//! A new key is told to servers for a while before it signs. The one before is told to them until
//! the last lease that it has signed is over. No key is told to them that is not in this broker's
//! file: who can write to the store cannot have servers believe another one.
//!
//! From the same keys come those to which jobs' leases are bound: each broker of a pool makes the
//! same one again, and the store holds none.

use crate::desk::{Former, Keys, SILENT_AFTER};
use crate::store::StoreError;
use jiff::{SignedDuration, Timestamp};
use outboard_auth::lease_key;
use outboard_pool::lease::{CLOCK_TOLERANCE, SigningKey};
use outboard_pool::words::{OwnerName, Purpose, Thumbprint};

/// Servers that get leases have spoken since a key has been known for so long.
const TOLD_FOR: SignedDuration = SignedDuration::from_secs(SILENT_AFTER.as_secs() + 5);

/// The keys of a broker.
#[derive(Debug)]
pub(crate) struct Signers {
    present: SigningKey,
    /// The one that is to sign, and since when servers are told of it.
    next: Option<(SigningKey, Timestamp)>,
    former: Vec<Former>,
    /// All else that is in the file.
    rest: Vec<SigningKey>,
}

fn is(key: &SigningKey, text: &str) -> bool {
    key.public().to_text() == text
}

fn job_key(
    key: &SigningKey,
    asker: &OwnerName,
    job: &Purpose,
) -> Result<(String, Thumbprint), String> {
    lease_key::derive(key.to_secret_text().as_bytes(), asker, job)
        .map_err(|error| format!("a key for the lease cannot be made: {error}"))
}

impl Signers {
    /// Goes on with what was kept, with these keys, of which the newest is the first.
    ///
    /// # Errors
    ///
    /// If the one that signs is not among them, and must be.
    pub(crate) fn new(
        mut own: Vec<SigningKey>,
        kept: Option<&Keys>,
        is_shared: bool,
        now: Timestamp,
    ) -> Result<Signers, StoreError> {
        let none = || StoreError::Strange("there is no key that signs leases".into());
        let signs = kept.and_then(|kept| own.iter().position(|key| is(key, &kept.signs)));
        match (kept, signs) {
            (Some(kept), None) if is_shared => {
                return Err(StoreError::OtherKey { key: kept.signs.clone() });
            }
            (Some(kept), None) if !own.is_empty() => {
                tracing::warn!(
                    key = kept.signs,
                    "the key that has signed leases is gone: servers refuse those from before"
                );
            }
            _ => {}
        }
        let present = signs.unwrap_or(0);
        if present >= own.len() {
            return Err(none());
        }
        let mut former = kept.map(|kept| kept.former.clone()).unwrap_or_default();
        former.retain(|former| own.iter().any(|key| is(key, &former.key)));
        let present_key = own.remove(present);
        // Those behind it have signed before.
        let next = (present > 0).then(|| (own.swap_remove(0), now));
        Ok(Signers { present: present_key, next, former, rest: own })
    }

    /// The key that signs.
    pub(crate) fn present(&self) -> &SigningKey {
        &self.present
    }

    /// All that servers are to believe.
    pub(crate) fn believed(&self) -> Vec<String> {
        let next = self.next.iter().map(|(key, _)| key.public().to_text());
        let former = self.former.iter().map(|former| former.key.clone());
        std::iter::once(self.present.public().to_text()).chain(next).chain(former).collect()
    }

    /// As it is kept.
    pub(crate) fn keys(&self) -> Keys {
        Keys { signs: self.present.public().to_text(), former: self.former.clone() }
    }

    /// The file has been read again.
    ///
    /// # Errors
    ///
    /// If the key that signs is not in it any more.
    pub(crate) fn reload(
        &mut self,
        own: Vec<SigningKey>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let again = Signers::new(own, Some(&self.keys()), true, now)?;
        let is_known = match (&self.next, &again.next) {
            (Some((old, _)), Some((new, _))) => is(old, &new.public().to_text()),
            _ => false,
        };
        if !is_known {
            self.next = again.next;
        }
        self.former = again.former;
        self.rest = again.rest;
        Ok(())
    }

    /// Does what is due; whether something has changed. `last` is when the last lease ends that is
    /// signed by now.
    pub(crate) fn tick(&mut self, now: Timestamp, last: impl FnOnce() -> Timestamp) -> bool {
        let had = self.former.len();
        self.former.retain(|former| now < former.until);
        let is_told = |(_, since): &(SigningKey, Timestamp)| now.duration_since(*since) >= TOLD_FOR;
        let Some((next, _)) = self.next.take_if(|next| is_told(next)) else {
            return self.former.len() < had;
        };
        let former = std::mem::replace(&mut self.present, next);
        let until = last().max(now) + CLOCK_TOLERANCE * 2;
        let key = former.public().to_text();
        tracing::info!(key = %self.present.public().to_text(), former = key, %until, "another key signs leases; servers know the former one until then");
        self.former.push(Former { key, until });
        self.rest.push(former);
        true
    }

    /// The thumbprint of the key to which the lease is bound that somebody asks for, for a job.
    pub(crate) fn job_thumbprint(
        &self,
        asker: &OwnerName,
        job: &Purpose,
    ) -> Result<Thumbprint, String> {
        Ok(job_key(&self.present, asker, job)?.1)
    }

    /// The private key with that thumbprint, as PEM, if a key in the file has made it.
    pub(crate) fn job_key(
        &self,
        asker: &OwnerName,
        job: &Purpose,
        thumbprint: &Thumbprint,
    ) -> Option<String> {
        let next = self.next.iter().map(|(key, _)| key);
        let all = std::iter::once(&self.present).chain(next).chain(&self.rest);
        let mut made = all.filter_map(|key| job_key(key, asker, job).ok());
        made.find(|(_, of)| of == thumbprint).map(|(pem, _)| pem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// The same keys each time.
    fn own(texts: &[&String]) -> Vec<SigningKey> {
        texts.iter().map(|text| SigningKey::from_text(text).unwrap()).collect()
    }

    fn key() -> (String, String) {
        let key = SigningKey::generate().unwrap();
        (key.to_secret_text(), key.public().to_text())
    }

    #[test]
    fn a_new_key_is_told_before_it_signs_and_the_former_one_until_its_leases_are_over() {
        let [(old, old_public), (new, new_public)] = [key(), key()];
        let mut signers = Signers::new(own(&[&old]), None, true, at(0)).unwrap();
        assert_eq!(signers.believed(), [old_public.as_str()]);
        signers.reload(own(&[&new, &old]), at(10)).unwrap();
        // Read again, it waits no longer.
        signers.reload(own(&[&new, &old]), at(12)).unwrap();
        assert!(!signers.tick(at(24), || unreachable!()));
        assert!(is(signers.present(), &old_public));
        assert_eq!(signers.believed(), [old_public.clone(), new_public.clone()]);
        assert!(signers.tick(at(25), || at(85)));
        assert!(is(signers.present(), &new_public));
        assert_eq!(signers.believed(), [new_public.clone(), old_public.clone()]);
        // One that is started anew goes on with it.
        let kept = signers.keys();
        signers = Signers::new(own(&[&new, &old]), Some(&kept), true, at(30)).unwrap();
        assert_eq!(signers.believed(), [new_public.clone(), old_public.clone()]);
        assert!(!signers.tick(at(144), || unreachable!()));
        assert!(signers.tick(at(145), || unreachable!()));
        assert_eq!(signers.believed(), [new_public.as_str()]);
        // A file that still has the former one changes nothing.
        signers.reload(own(&[&new, &old]), at(150)).unwrap();
        assert_eq!(signers.believed(), [new_public]);
    }

    #[test]
    fn servers_are_told_of_no_key_that_the_broker_does_not_have() {
        let [(old, old_public), (new, new_public), (_, others)] = [key(), key(), key()];
        let former = |key: &String| Former { key: key.clone(), until: at(999) };
        let former = vec![former(&old_public), former(&others)];
        let kept = Keys { signs: new_public.clone(), former };
        let mut signers = Signers::new(own(&[&new, &old]), Some(&kept), true, at(0)).unwrap();
        assert_eq!(signers.believed(), [new_public.as_str(), &old_public]);
        // Who takes the former one out of the file has servers believe it no longer.
        signers.reload(own(&[&new]), at(1)).unwrap();
        assert_eq!(signers.believed(), [new_public]);
        assert!(signers.keys().former.is_empty());
    }

    #[test]
    fn the_key_of_a_job_is_made_again_by_each_broker_that_has_the_key_of_then() {
        let [(old, _), (new, _), (newest, _)] = [key(), key(), key()];
        let (asker, job) = ("slurm".parse().unwrap(), "slurm.blue.7".parse().unwrap());
        let mut signers = Signers::new(own(&[&old]), None, true, at(0)).unwrap();
        let thumbprint = signers.job_thumbprint(&asker, &job).unwrap();
        let pem = signers.job_key(&asker, &job, &thumbprint);
        assert!(pem.is_some());
        // Also while another key signs, and if the broker is started anew.
        signers.reload(own(&[&new, &old]), at(10)).unwrap();
        assert_eq!(signers.job_thumbprint(&asker, &job).unwrap(), thumbprint);
        assert!(signers.tick(at(25), || at(85)));
        assert_ne!(signers.job_thumbprint(&asker, &job).unwrap(), thumbprint);
        assert_eq!(signers.job_key(&asker, &job, &thumbprint), pem);
        signers.reload(own(&[&newest, &new, &old]), at(26)).unwrap();
        assert_eq!(signers.job_key(&asker, &job, &thumbprint), pem);
        let kept = signers.keys();
        signers = Signers::new(own(&[&new, &old]), Some(&kept), true, at(30)).unwrap();
        assert_eq!(signers.job_key(&asker, &job, &thumbprint), pem);
        // Another asker's is another, and without the key of then there is none.
        assert_eq!(signers.job_key(&"slurm2".parse().unwrap(), &job, &thumbprint), None);
        signers.reload(own(&[&new]), at(31)).unwrap();
        assert_eq!(signers.job_key(&asker, &job, &thumbprint), None);
    }

    #[test]
    fn a_broker_without_the_pools_key_does_not_lead() {
        let [(own_key, _), (_, others)] = [key(), key()];
        let kept = Keys { signs: others.clone(), former: Vec::new() };
        let refused = Signers::new(own(&[&own_key]), Some(&kept), true, at(0)).unwrap_err();
        assert!(refused.to_string().contains(&others), "{refused}");
        // Alone with its file it has nothing else to sign with.
        assert!(Signers::new(own(&[&own_key]), Some(&kept), false, at(0)).is_ok());
        let mut signers = Signers::new(own(&[&own_key]), None, true, at(0)).unwrap();
        let (other, _) = key();
        assert!(signers.reload(own(&[&other]), at(1)).is_err());
        assert!(is(signers.present(), &signers.believed()[0]));
    }
}
