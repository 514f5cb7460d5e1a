//! Whether the kernel can encrypt.

use outboard_transport::tls::kernel;

use super::finding::Finding;

const CHECK: &str = "tls-kernel";

/// What the kernel can do, where it is to encrypt or not.
pub(super) fn look(is_on: bool) -> Finding {
    match (kernel::check(), is_on) {
        (Ok(()), true) => Finding::ok(CHECK, "the kernel encrypts connections of sessions"),
        (Ok(()), false) => Finding::ok(CHECK, "the kernel can encrypt, and is not asked to"),
        (Err(why), true) => {
            let mend = "connections of sessions are encrypted without the kernel meanwhile";
            Finding::warn(CHECK, why.to_string(), mend)
        }
        (Err(why), false) => Finding::ok(CHECK, format!("{why}; it is not asked to encrypt")),
    }
}
