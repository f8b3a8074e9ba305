//! Orders: kept with their session, and given to one's own only.

use bytes::Bytes;

use super::{
    super::{MAX_COMMANDS_BYTES, Page, Store, StoreError, Tenant},
    key, saved, session, tenant,
};

pub(super) async fn stay_with_their_session(store: &dyn Store) {
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
    let order = async |orders: &[u8]| {
        let orders = Bytes::copy_from_slice(orders);
        store.put_commands(Some(&account), session(1), orders).await
    };
    assert!(!order(b"before").await.unwrap());
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    store.save_state(saved(one, session(2), 900)).await.unwrap();
    assert!(shown(10).await.is_empty());
    assert!(order(b"first").await.unwrap());
    // A later save changes the states and not the orders; an older state has them as well.
    let mut child = saved(one, session(1), 20);
    child.opening = 2;
    store.save_state(child).await.unwrap();
    assert_eq!(
        (shown(10).await, shown(20).await),
        ("first".into(), "first".into())
    );
    assert!(order(b"another").await.unwrap());
    assert_eq!(shown(10).await, "another");
    let listed = store
        .list_sessions(None, Page { skip: 0, take: 9 })
        .await
        .unwrap();
    let orders = |at: usize| (listed[at].session, listed[at].commands.clone());
    assert_eq!(orders(0), (session(1), Bytes::from("another")));
    assert_eq!(orders(1), (session(2), Bytes::new()));
    let most = vec![7; MAX_COMMANDS_BYTES];
    assert!(order(&most).await.unwrap());
    let refused = order(&[&most[..], b"x"].concat()).await;
    assert!(matches!(refused, Err(StoreError::Overlong(_))));
    assert_eq!(shown(20).await, most);
    assert!(order(b"").await.unwrap());
    assert!(shown(20).await.is_empty());
}

/// SECURITY: what one account asks for never reaches another's session, not even one of that id.
pub(super) async fn are_given_to_ones_own_sessions(store: &dyn Store) {
    let (one, other) = (tenant("a"), tenant("b"));
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    store
        .save_state(saved(other, session(1), 10))
        .await
        .unwrap();
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    let order = async |owner: Option<&Tenant>, number, orders: &'static str| {
        let account = owner.map(Tenant::account);
        let ordered = store.put_commands(account.as_ref(), session(number), orders.into());
        ordered.await.unwrap()
    };
    let of = async |owner: &Tenant, number| {
        let found = store.find_state(owner, 1, &[key(number)]).await.unwrap();
        found.unwrap().commands
    };
    assert!(!order(Some(&other), 2, "theirs").await);
    assert!(order(Some(&other), 1, "theirs").await);
    assert!(of(&one, 10).await.is_empty() && of(&one, 20).await.is_empty());
    assert_eq!(of(&other, 10).await, "theirs");
    assert!(order(None, 2, "of the administrator").await);
    assert_eq!(of(&one, 20).await, "of the administrator");
    assert!(!order(None, 3, "of nobody").await);
}
