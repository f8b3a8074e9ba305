//! Commands stay with their session, and reach only sessions of the account.

use bytes::Bytes;

use super::{
    super::{MAX_COMMANDS_BYTES, Page, Store, StoreError, Tenant},
    key, saved, session, tenant,
};

pub(super) async fn survive_later_saves(store: &dyn Store) {
    let one = tenant("a");
    let account = one.account();
    let shown = async |number: u64| {
        let opening = number / 10;
        let found = store.find_state(&one, opening, &[key(number)]).await;
        let found = found.unwrap().unwrap();
        let row = store
            .load_session(Some(&account), session(1))
            .await
            .unwrap();
        assert_eq!(row.unwrap().commands, found.commands);
        found.commands
    };
    let put = async |commands: &[u8]| {
        let commands = Bytes::copy_from_slice(commands);
        store
            .put_commands(Some(&account), session(1), commands)
            .await
    };
    assert!(!put(b"before").await.unwrap());
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    store.save_state(saved(one, session(2), 900)).await.unwrap();
    assert!(shown(10).await.is_empty());
    assert!(put(b"first").await.unwrap());
    // A later save changes the states and not the commands; an older state has them too.
    let mut child = saved(one, session(1), 20);
    child.opening = 2;
    store.save_state(child).await.unwrap();
    assert_eq!(
        (shown(10).await, shown(20).await),
        ("first".into(), "first".into())
    );
    assert!(put(b"another").await.unwrap());
    assert_eq!(shown(10).await, "another");
    let listed = store
        .list_sessions(None, Page { skip: 0, take: 9 })
        .await
        .unwrap();
    let commands = |at: usize| (listed[at].session, listed[at].commands.clone());
    assert_eq!(commands(0), (session(1), Bytes::from("another")));
    assert_eq!(commands(1), (session(2), Bytes::new()));
    let most = vec![7; MAX_COMMANDS_BYTES];
    assert!(put(&most).await.unwrap());
    let refused = put(&[&most[..], b"x"].concat()).await;
    assert!(matches!(refused, Err(StoreError::Overlong(_))));
    assert_eq!(shown(20).await, most);
    assert!(put(b"").await.unwrap());
    assert!(shown(20).await.is_empty());
}

/// SECURITY: an account's commands never reach another account's session, not even one with the same id.
pub(super) async fn reach_only_sessions_of_the_account(store: &dyn Store) {
    let (one, other) = (tenant("a"), tenant("b"));
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    store
        .save_state(saved(other, session(1), 10))
        .await
        .unwrap();
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    let put = async |owner: Option<&Tenant>, number, commands: &'static str| {
        let account = owner.map(Tenant::account);
        let replaced = store.put_commands(account.as_ref(), session(number), commands.into());
        replaced.await.unwrap()
    };
    let of = async |owner: &Tenant, number| {
        let found = store.find_state(owner, 1, &[key(number)]).await.unwrap();
        found.unwrap().commands
    };
    assert!(!put(Some(&other), 2, "theirs").await);
    assert!(put(Some(&other), 1, "theirs").await);
    assert!(of(&one, 10).await.is_empty() && of(&one, 20).await.is_empty());
    assert_eq!(of(&other, 10).await, "theirs");
    assert!(put(None, 2, "of the administrator").await);
    assert_eq!(of(&one, 20).await, "of the administrator");
    assert!(!put(None, 3, "of nobody").await);
}
