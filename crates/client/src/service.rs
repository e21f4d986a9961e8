//! The client as a `tower` service.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    Body, BoxError, Client, Error,
    density::{self, Wishes},
    exchange::Options,
};

/// Sends requests like [`Client::request`] does, with the client's own options. A body that is at hand as a whole can be sent again
/// where a way fails, any other is sent once.
impl<B> Service<Request<B>> for Client
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let request = request.map(|body| Body::wrap_known(Box::pin(body)));
        let sent = density::run(self.handle().clone(), request, Options::default(), Wishes::default());
        Box::pin(async move {
            let (mut response, timeline) = sent.await?;
            response.extensions_mut().insert(timeline);
            Ok(response)
        })
    }
}
