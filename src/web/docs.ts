/** The API description as a page: Swagger UI on /openapi.json. */
import SwaggerUI from 'swagger-ui-dist/swagger-ui-bundle.js';
import 'swagger-ui-dist/swagger-ui.css';

SwaggerUI({ url: '/openapi.json', dom_id: '#api', deepLinking: true, validatorUrl: null });
