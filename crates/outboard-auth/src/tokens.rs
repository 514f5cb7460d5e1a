//! Bearer tokens: made by `outboard token`, looked up by the running server.
//!
//! A token is 256 random bits, and the server keeps its SHA-256. 256 bits cannot be found by
//! trying, however fast the hash: a slow one, as passwords need, would only let strangers keep the
//! server busy.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use outboard_pool::api::Role;
use outboard_pool::words::{Malformed, Node};
use outboard_transport::random;
use serde::{Deserialize, Serialize};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::files::{lock, own_folder, read_own, write_secret};
use outboard_control::identity::{Identity, Limits};

/// What tokens begin with, so that people and scanners recognise one.
const PREFIX: &str = "obt_";
/// Random bytes of a token.
const BYTES: usize = 32;
/// Random bytes of a token's public name.
const ID_BYTES: usize = 4;

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its public name.
    pub id: String,
    /// SHA-256 of the token, in hexadecimal.
    hash: String,
    /// Whose sessions it starts.
    pub owner: String,
    /// When it was made.
    pub created: Timestamp,
    /// From when on it is refused; never if there is none.
    pub expires: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked: Option<Timestamp>,
    /// The limits of those sessions.
    #[serde(default)]
    pub limits: Limits,
    /// What its holder may do at a broker; without one it is a client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// Whether a token is valid at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    /// It is accepted.
    Good,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

/// Why a token is not accepted: for the log, not for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unaccepted {
    /// There is no such token.
    Unknown,
    /// The token of this name is no longer good.
    NoLonger(String, TokenState),
}

/// The file of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    tokens: Vec<Record>,
}

/// Why a change to the tokens is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file or its folder cannot be used.
    #[error("the tokens in {path} cannot be used: {error}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// An owner cannot be called so.
    #[error(
        "`{0}` cannot be the name of an owner: it has 1 to 64 letters, digits, and any of . _ - @ +, and is not eight hexadecimal digits"
    )]
    Owner(String),
    /// No node can be called so.
    #[error("{0}")]
    Node(Malformed),
    /// No token is called so.
    #[error("there is no token `{0}`")]
    None(String),
}

impl Record {
    /// Its present state.
    pub fn state(&self, now: Timestamp) -> TokenState {
        match (self.revoked, self.expires) {
            (Some(_), _) => TokenState::Revoked,
            (None, Some(expires)) if expires <= now => TokenState::Expired,
            _ => TokenState::Good,
        }
    }

    /// What its holder may do.
    pub fn role(&self) -> Role {
        self.role.unwrap_or(Role::Client)
    }

    fn identity(&self) -> Identity {
        Identity { owner: self.owner.clone(), token: Some(self.id.clone()), limits: self.limits }
    }
}

impl fmt::Display for TokenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenState::Good => "good",
            TokenState::Expired => "expired",
            TokenState::Revoked => "revoked",
        })
    }
}

/// Whether an owner can be called so. Names with a colon are those of users of the machine, one is
/// everybody's, and what looks like the name of a token is one.
pub fn is_owner(name: &str) -> bool {
    let fine = |letter: char| letter.is_alphanumeric() || "._-@+".contains(letter);
    let is_id = name.len() == 2 * ID_BYTES && name.bytes().all(|letter| letter.is_ascii_hexdigit());
    name != Identity::ANONYMOUS
        && !is_id
        && (1..=64).contains(&name.chars().count())
        && name.chars().all(fine)
}

fn hash(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    bytes
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file in a server's folder.
pub fn file(state: &Path) -> PathBuf {
    state.join("tokens.json")
}

/// All tokens.
pub fn list(state: &Path) -> Result<Vec<Record>, TokenError> {
    let path = file(state);
    read(&path)
        .map(|contents| contents.unwrap_or_default().tokens)
        .map_err(|error| TokenError::File { path, error })
}

/// Makes a token; its text, which is kept nowhere.
pub fn create(
    state: &Path,
    owner: &str,
    expires: Option<Timestamp>,
    limits: Limits,
) -> Result<(String, Record), TokenError> {
    create_as(state, owner, None, expires, limits)
}

/// As [`create`], for a broker: its holder may do there what the role says.
pub fn create_as(
    state: &Path,
    owner: &str,
    role: Option<Role>,
    expires: Option<Timestamp>,
    limits: Limits,
) -> Result<(String, Record), TokenError> {
    if !is_owner(owner) {
        return Err(TokenError::Owner(owner.to_owned()));
    }
    if role == Some(Role::Node) {
        Node::of(owner).map_err(TokenError::Node)?;
    }
    change(state, |contents| {
        let token = format!("{PREFIX}{}", hexadecimal(&random::<BYTES>()?));
        let mut id = hexadecimal(&random::<ID_BYTES>()?);
        while contents.tokens.iter().any(|other| other.id == id) {
            id = hexadecimal(&random::<ID_BYTES>()?);
        }
        let record = Record {
            id,
            hash: hexadecimal(&hash(&token)),
            owner: owner.to_owned(),
            created: now(),
            expires,
            revoked: None,
            limits,
            role,
        };
        contents.tokens.push(record.clone());
        Ok(Some((token, record)))
    })?
    .ok_or_else(|| TokenError::None(owner.to_owned()))
}

/// Revokes the token of that name, or all of an owner; how many were good until now.
pub fn revoke(state: &Path, name: &str) -> Result<usize, TokenError> {
    let revoked = change(state, |contents| {
        let now = now();
        let named = |record: &&mut Record| record.id == name || record.owner == name;
        let mut known = false;
        let mut count = 0;
        for record in contents.tokens.iter_mut().filter(named) {
            known = true;
            if record.revoked.is_none() {
                record.revoked = Some(now);
                count += 1;
            }
        }
        Ok(known.then_some(count))
    })?;
    revoked.ok_or_else(|| TokenError::None(name.to_owned()))
}

/// The time, as exact as the file says it.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn change<T>(
    state: &Path,
    change: impl FnOnce(&mut Contents) -> io::Result<T>,
) -> Result<T, TokenError> {
    let path = file(state);
    let attempt = || {
        own_folder(state)?;
        // Two commands at once must not lose each other's change.
        let _held = lock(&state.join("tokens.lock"))?;
        let mut contents = read(&path)?.unwrap_or_default();
        let before = contents.clone();
        let result = change(&mut contents)?;
        if contents != before {
            let mut text = serde_json::to_vec_pretty(&contents)?;
            text.push(b'\n');
            write_secret(&path, &text)?;
        }
        Ok(result)
    };
    attempt().map_err(|error: io::Error| TokenError::File { path: path.clone(), error })
}

/// The contents of the file; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Contents>> {
    let bytes = match read_own(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let contents: Contents = serde_json::from_slice(&bytes)?;
    for (at, record) in contents.tokens.iter().enumerate() {
        if decoded(&record.hash).is_none() {
            return Err(io::Error::other(format!("token {} has no hash", record.id)));
        }
        // Revoking one would say the same of the other.
        if contents.tokens[..at].iter().any(|other| other.id == record.id) {
            return Err(io::Error::other(format!("two tokens are called {}", record.id)));
        }
    }
    Ok(Some(contents))
}

fn decoded(hash: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hash.len() != 64 || !hash.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hash[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The tokens as a running server knows them.
#[derive(Debug)]
pub struct Known {
    path: PathBuf,
    seen: RefCell<FileSnapshot>,
    /// Whether the file has been read anew since this was last taken: all tasks must act on a
    /// change, whichever reads it.
    changed: Cell<bool>,
}

#[derive(Debug, Default)]
struct FileSnapshot {
    /// The file's identity and times when it was read.
    stamp: Option<Stamp>,
    tokens: Vec<([u8; 32], Record)>,
    /// The error of that reading.
    problem: Option<String>,
    /// There has been a file: that it is gone does not mean that all tokens are revoked.
    was_there: bool,
}

/// Changes whenever the file does: it is always replaced by another one.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl Known {
    pub fn open(state: &Path) -> Known {
        let known =
            Known { path: file(state), seen: RefCell::default(), changed: Cell::new(false) };
        known.read();
        known
    }

    /// Reads the file again if it has changed.
    pub fn refresh(&self) {
        if stamp(&self.path) != self.seen.borrow().stamp {
            self.read();
        }
    }

    /// Whether the tokens have changed since the last call, even if another task has read them
    /// since.
    pub fn take_changed(&self) -> bool {
        self.refresh();
        self.changed.take()
    }

    fn read(&self) {
        // Should it change meanwhile, the stamp is that of before, and it is read once more.
        let stamp = stamp(&self.path);
        let read = read(&self.path);
        let mut seen = self.seen.borrow_mut();
        seen.stamp = stamp;
        self.changed.set(true);
        let read = read.and_then(|contents| match contents {
            None if seen.was_there => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the file is gone"))
            }
            contents => {
                seen.was_there |= contents.is_some();
                Ok(contents.unwrap_or_default())
            }
        });
        match read {
            Ok(contents) => {
                let with_hash = |record: Record| Some((decoded(&record.hash)?, record));
                seen.tokens = contents.tokens.into_iter().filter_map(with_hash).collect();
                seen.problem = None;
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "the tokens cannot be read; none is accepted");
                seen.problem = Some(error.to_string());
            }
        }
    }

    /// What is wrong with the file.
    pub fn problem(&self) -> Option<String> {
        self.seen.borrow().problem.clone()
    }

    /// Whether there is any token, good or not: then the server's administrator means to use them.
    pub fn any(&self) -> bool {
        !self.seen.borrow().tokens.is_empty()
    }

    /// Whose token this is, for a server: only clients have anything to do there.
    pub fn check(&self, token: &str, now: Timestamp) -> Result<Identity, Unaccepted> {
        match self.check_as(token, now)? {
            (identity, Role::Client) => Ok(identity),
            _ => Err(Unaccepted::Unknown),
        }
    }

    /// Whose token this is, and what its holder may do. All tokens are compared whatever is found,
    /// and every result is treated the same way: how long this takes says nothing.
    pub fn check_as(&self, token: &str, now: Timestamp) -> Result<(Identity, Role), Unaccepted> {
        let presented = hash(token);
        let seen = self.seen.borrow();
        let mut found = u32::MAX;
        for (index, (hash, _)) in seen.tokens.iter().enumerate() {
            found.conditional_assign(&(index as u32), hash.ct_eq(&presented));
        }
        let record = seen.tokens.get(found as usize).map(|(_, record)| record);
        match record.map(|record| (record, record.state(now))) {
            Some((record, TokenState::Good)) if seen.problem.is_none() => {
                Ok((record.identity(), record.role()))
            }
            Some((record, state)) => Err(Unaccepted::NoLonger(record.id.clone(), state)),
            None => Err(Unaccepted::Unknown),
        }
    }

    /// Whether a session of this identity may start now; the time of validity may have begun or
    /// ended since the hello.
    pub fn may_start(&self, identity: &Identity, now: Timestamp) -> bool {
        let Some(token) = &identity.token else { return true };
        self.refresh();
        let seen = self.seen.borrow();
        let good = |record: &Record| record.id == *token && record.state(now) == TokenState::Good;
        seen.problem.is_none() && seen.tokens.iter().any(|(_, record)| good(record))
    }

    /// When the token of this identity expires; `None` if never, or if it has shown none.
    pub fn expires(&self, identity: &Identity) -> Option<Timestamp> {
        let token = identity.token.as_ref()?;
        let seen = self.seen.borrow();
        seen.tokens.iter().find(|(_, record)| record.id == *token)?.1.expires
    }

    /// Whether sessions of this identity are to end: its token was revoked or is gone. One that has
    /// expired starts no more, and those that it has started go on.
    pub fn is_over(&self, identity: &Identity) -> bool {
        identity.token.as_ref().is_some_and(|token| self.is_revoked(token))
    }

    /// Whether the token of this name was revoked or is gone, as far as the file can be read.
    pub fn is_revoked(&self, token: &str) -> bool {
        let seen = self.seen.borrow();
        let is_good = |record: &Record| record.id == token && record.revoked.is_none();
        seen.problem.is_none() && !seen.tokens.iter().any(|(_, record)| is_good(record))
    }
}

#[cfg(test)]
mod tests;
