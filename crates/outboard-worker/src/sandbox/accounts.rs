//! The users that the system knows. Where a machine keeps them, only its C library can tell.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// An entry is not longer, in bytes, and a user is not in more groups.
const MOST_BYTES: usize = 1 << 20;
const MOST_GROUPS: usize = 1 << 16;

pub(super) struct Account {
    pub(super) id: u32,
    /// Its first group.
    pub(super) group: u32,
    pub(super) name: CString,
}

/// The account of that number.
pub(super) fn by_number(id: u32) -> io::Result<Option<Account>> {
    // SAFETY: `find` gives what the function takes.
    find(|entry, bytes, len, found| unsafe { libc::getpwuid_r(id, entry, bytes, len, found) })
}

/// The account of that name.
pub(super) fn by_name(name: &str) -> io::Result<Option<Account>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let name = name.as_ptr();
    // SAFETY: as above; the name is a C string that lives until the end of this function.
    find(|entry, bytes, len, found| unsafe { libc::getpwnam_r(name, entry, bytes, len, found) })
}

/// Has `ask` look for an account: with room for the entry, and room for its strings, which grows
/// until they fit.
fn find(
    ask: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<Account>> {
    let mut strings = vec![0; 1 << 10];
    loop {
        let (mut entry, mut found) = (MaybeUninit::uninit(), null_mut());
        match ask(entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &raw mut found) {
            0 => {
                // SAFETY: null if there is no such account, or the entry, which is written then.
                let entry = unsafe { found.as_ref() };
                return Ok(entry.map(|entry| Account {
                    id: entry.pw_uid,
                    group: entry.pw_gid,
                    // SAFETY: a C string in `strings`.
                    name: unsafe { CStr::from_ptr(entry.pw_name) }.to_owned(),
                }));
            }
            libc::ERANGE if strings.len() < MOST_BYTES => strings.resize(2 * strings.len(), 0),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The groups that the account is in.
pub(super) fn groups(account: &Account) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 32];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is a C string, and there is room for as many groups as `count` says.
        let result = unsafe {
            libc::getgrouplist(
                account.name.as_ptr(),
                account.group,
                groups.as_mut_ptr(),
                &raw mut count,
            )
        };
        if result >= 0 {
            groups.truncate(count as usize);
            return Ok(groups);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(io::Error::other("they are too many"));
        }
        groups.resize(2 * groups.len(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let root = by_name("root").unwrap().expect("every system has it");
        assert_eq!((root.id, root.group), (0, 0));
        assert!(groups(&root).unwrap().contains(&0));
        assert_eq!(by_number(0).unwrap().expect("as above").name, root.name);
        assert!(by_name("nobody-of-that-name").unwrap().is_none());
        assert!(by_name("ro\0ot").unwrap().is_none());
    }
}
