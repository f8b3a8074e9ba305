//! Names of keys in the server.
//!
//! What stands in braces decides the slot of a cluster: an account's digest, so that a script reaches
//! all that is the account's.

use crate::store::Account;

pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// What all names of an account begin with.
    pub(super) fn account(&self, account: &Account) -> Vec<u8> {
        format!("{}{{{}}}", self.prefix, hex::encode(account.bytes())).into_bytes()
    }

    /// What the names begin with that are no account's.
    pub(super) fn common(&self) -> Vec<u8> {
        format!("{}{{all}}", self.prefix).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::tenant;

    #[test]
    fn each_account_is_a_slot_of_its_own() {
        let names = Names::new("mine:");
        let account = tenant("a").account();
        let tag = hex::encode(account.bytes());
        assert_eq!(
            names.account(&account),
            format!("mine:{{{tag}}}").as_bytes()
        );
        assert_eq!(names.common(), b"mine:{all}");
    }
}
