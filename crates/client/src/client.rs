//! The client itself.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Method, Uri};
use ropeway_core::wire::message::NetworkKind;
use tokio::sync::watch;

use crate::{Builder, Error, LinkState, PushStream, RequestBuilder, builder::Config, engine, shared::Shared};

/// An HTTP client that keeps a link to a gateway.
///
/// Clones are cheap and share the link, which is closed when the last of them is dropped, together with the requests and streams
/// made from them. The link lives on the tokio runtime of its first use; whatever opens it must be called within one.
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Begins to make a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(config: Config) -> Self {
        let shared = Arc::new(Shared::new(config));
        Self { handle: Handle(Arc::new(Inner { shared, started: AtomicBool::new(false) })) }
    }

    /// Begins a request by GET.
    pub fn get<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a request by HEAD.
    pub fn head<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a request by POST.
    pub fn post<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a request by PUT.
    pub fn put<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a request by PATCH.
    pub fn patch<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a request by DELETE.
    pub fn delete<U: TryInto<Uri, Error: Into<http::Error>>>(&self, url: U) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Begins a request. A malformed URL is told when it is sent.
    pub fn request<U: TryInto<Uri, Error: Into<http::Error>>>(&self, method: Method, url: U) -> RequestBuilder {
        RequestBuilder::new(self.handle.clone(), method, url.try_into().map_err(Into::into))
    }

    /// Returns the messages that gateways push to this client, from the next one on.
    ///
    /// A message is acknowledged when the app asks for the next one, so that one which is lost in a crash comes again. Up to 1,024 messages (4 MiB) wait for the stream; what comes beyond is lost and told as a gap. The newest stream
    /// gets the messages, an older one ends. Opens the link if there is none.
    #[must_use = "messages wait until the stream is polled"]
    pub fn pushes(&self) -> PushStream {
        self.handle.connect();
        PushStream::new(self.handle.clone())
    }

    /// Subscribes to a topic, on this link and every later one.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyTopics`] beyond 100 topics.
    pub fn subscribe(&self, topic: &str) -> Result<(), Error> {
        let mut roster = self.handle.shared().roster();
        if !roster.topics.iter().any(|known| known == topic) {
            if roster.topics.len() >= TOPICS_MAX {
                return Err(Error::TooManyTopics { max: TOPICS_MAX });
            }
            roster.topics.push(topic.into());
            for (_, session) in &roster.sessions {
                session.with(|client, _| client.subscribe(topic));
            }
        }
        drop(roster);
        self.handle.connect();
        Ok(())
    }

    /// Ends the subscription to a topic.
    pub fn unsubscribe(&self, topic: &str) {
        let mut roster = self.handle.shared().roster();
        roster.topics.retain(|known| known != topic);
        for (_, session) in &roster.sessions {
            session.with(|client, _| client.unsubscribe(topic));
        }
    }

    /// Returns where the link is, now and with each change.
    #[must_use]
    pub fn link_state(&self) -> watch::Receiver<LinkState> {
        self.handle.shared().state.subscribe()
    }

    /// Opens the link, if it is not open or being opened.
    pub fn connect(&self) {
        self.handle.connect();
    }

    /// Says that the device's network changed: QUIC moves to a new socket, other links are checked, and a lost one is sought at once.
    ///
    /// Where it is known which network it is now, [`set_network`](Self::set_network) says more.
    pub fn network_changed(&self) {
        self.handle.shared().pace.handle_changed();
        self.handle.shared().handle_network("");
    }

    /// Says on which network the device is: its kind, and a label that is the same whenever the device comes back to it, as the name of a
    /// Wi-Fi network or an operator. How long requests may take is learned for each, and which addresses and carriers get through.
    ///
    /// The label stays on the device; gateways are told the kind. Another network than before counts as
    /// [`network_changed`](Self::network_changed), the same one does nothing.
    pub fn set_network(&self, kind: NetworkKind, label: &str) {
        let shared = self.handle.shared();
        if shared.pace.set_network(label, kind) {
            shared.handle_network(label);
        }
    }

    /// Shows the gateways another ticket from the next link on, as after a login. A link that was refused is sought again at once.
    pub fn set_ticket(&self, ticket: impl Into<String>) {
        let ticket = ticket.into();
        self.handle.shared().wish(|wishes| wishes.ticket = Some(ticket));
    }

    /// Returns the public half of the device's key, which tickets name.
    #[must_use]
    pub fn device_public_key(&self) -> [u8; 32] {
        self.handle.shared().config.device_key.public()
    }

    /// Returns the id of the device.
    #[must_use]
    pub fn device_id(&self) -> &str {
        &self.handle.shared().config.device_id
    }

    /// Returns how many answers were changed on their way and therefore not given to the app; each was told as [`Event::Tampered`].
    ///
    /// [`Event::Tampered`]: crate::Event::Tampered
    #[must_use]
    pub fn tampered_answers(&self) -> u64 {
        self.handle.shared().tampered.load(Ordering::Relaxed)
    }

    /// Closes the link: new requests fail with [`Error::Closed`], those under way have 5 s to finish.
    pub async fn close(&self) {
        let shared = self.handle.shared();
        let mut state = shared.state.subscribe();
        if self.handle.0.started.swap(true, Ordering::AcqRel) {
            shared.wish(|wishes| wishes.close = true);
        } else {
            shared.view.send_modify(|view| view.closed = true);
            shared.state.send_replace(LinkState::Closed);
        }
        // The sender lives as long as `shared`.
        let _ = state.wait_for(|state| *state == LinkState::Closed).await;
        shared.feed(|_| ());
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = *self.handle.shared().state.borrow();
        f.debug_struct("Client").field("link", &state).finish_non_exhaustive()
    }
}

/// Keeps a client alive: what requests, bodies and streams hold.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// The link's task runs.
    started: AtomicBool,
}

impl Handle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Starts the task that keeps the link, unless it runs or there is nowhere to connect to.
    pub(crate) fn connect(&self) {
        let shared = self.shared();
        if shared.config.seeks_links() && !self.0.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(engine::run(Arc::clone(shared)));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.wish(|wishes| wishes.close = true);
    }
}

/// Topics one client may subscribe to; as many as HELLO may carry.
const TOPICS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_and_what_comes_of_it_can_be_handed_to_other_threads() {
        fn assert_send<T: Send>() {}
        fn assert_shared<T: Send + Sync + Clone>() {}
        assert_shared::<Client>();
        assert_send::<RequestBuilder>();
        assert_send::<crate::Response>();
        assert_send::<PushStream>();
        assert_send::<Builder>();
    }

    #[tokio::test]
    async fn a_client_without_gateways_closes_at_once() {
        let client = Client::builder().build().unwrap();
        client.close().await;
        assert_eq!(*client.link_state().borrow(), LinkState::Closed);
        let error = client.get("https://api.test/").send().await.unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:?}");
        client.close().await;
    }
}
