//! Large heads of requests: each way takes as much as the client sends.

use std::time::Duration;

use ropeway::{Error, Retry, Side, Way};
use ropeway_core::request::HEAD_BYTES_MAX;
use tokio::time::timeout;

use crate::ladder::Scene;

#[tokio::test]
async fn a_head_of_the_largest_size_goes_every_way_and_a_larger_one_is_refused_before_anything_is_sent() {
    let scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    for way in [Way::Address, Way::Pipe, Way::Plain] {
        let get = |length: usize| {
            let request = scene.client.get("https://api.test/").way(way).header("x-large", "v".repeat(length));
            timeout(Duration::from_secs(60), request.send())
        };
        let answer = get(HEAD_BYTES_MAX - 1024).await.expect("it never ended").unwrap();
        let tried = answer.timeline().to_string();
        assert_eq!(answer.status(), 200, "{tried}");
        assert!(answer.text().await.unwrap().contains("x-large: vvv"), "{tried}");
        let executed = scene.world.service.executed();
        let error = get(HEAD_BYTES_MAX).await.expect("it never ended").unwrap_err();
        let Error::HeadTooLarge { bytes, bytes_max, .. } = &error else { panic!("{error:?}") };
        assert!(*bytes_max == HEAD_BYTES_MAX && *bytes > HEAD_BYTES_MAX, "{error}");
        assert_eq!(
            (error.side(), error.retry(), scene.world.service.executed()),
            (Side::Local, Retry::Never, executed)
        );
    }
    let mut many = scene.client.get("https://api.test/");
    for number in 0..121 {
        many = many.header(format!("x-{number}"), "v");
    }
    assert!(matches!(many.send().await.unwrap_err(), Error::HeadTooLarge { headers: 121.., .. }));
}
