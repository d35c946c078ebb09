## interop      Java, JavaScript, Go and kcat clients, Spark, and AWS SDKs, against a broker (CLIENTS="java kcat" for some of them)
.PHONY: interop
interop: $(STAMP)
	$(BIN)/python interop/run.py $(CLIENTS) $(AGAIN)
