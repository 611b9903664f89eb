"""The server: Predictors over HTTP, in the forms that clients already speak. `app.make_app` puts it together."""
